#pragma once
// Products by our own kernels of tiles (docs/design/cuda-tiles.md), for Hopper.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues a product of bf16, f16 or i8 (whose sums wrap) on the current stream of `device`. False, with nothing queued,
/// where the kernels do not fit: another card or dtype, rows that are not whole multiples of 16 bytes apart, more than
/// one batch dim, an epilogue but the bias, a beta, results by columns; for i8 also operands whose depth is not
/// contiguous.
bool gemm_tiles(const Gemm& g, Device device);

/// A product of eight-bit numbers: C [m, n] = scale_a scale_b A B + bias, A [m, k] and B [n, k] with dense rows.
struct TileGemm8 {
  enum class Type : int { e4m3, e5m2, s8 } a_type = Type::e4m3, b_type = Type::e4m3;
  DType out = DType::bf16;  ///< bf16 or f32; for s8 i32, or i8 for the low bits
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  ///< one number each, on the device; both or neither
  const void* bias = nullptr;                          ///< [n] of `out`, or null; not for s8
};
/// The same for it. Sums of fp8 keep about 14 bits of what is added, as with cuBLASLt's fast accumulation.
bool gemm_tiles(const TileGemm8& g, Device device);

}  // namespace strata::cuda
