#pragma once
// cuBLASLt's products of eight-bit numbers.

#include "strata/core/device.h"
#include "strata/core/dtype.h"

namespace strata::cuda {

enum class EightBit : int { e4m3, e5m2, i8 };

/// C [m, n] = A B * scale_a * scale_b + bias, for A [m, k] whose rows are dense and B [k, n] whose columns are; `lda`
/// and `ldb` lie between them, `ldc` between C's rows. For i8 C is i32, without scales and bias.
struct ScaledGemm {
  EightBit a_type = EightBit::e4m3, b_type = EightBit::e4m3;
  DType out = DType::bf16;  ///< bf16, f16 or f32; i32 for i8
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  ///< on the device; null: 1
  bool by_row = false;                                 ///< scales are [m] and [n], else one number each
  bool fast = false;           ///< fp8: sums stay in the tensor cores, with about 14 bits, and are not handed on to f32
  const void* bias = nullptr;  ///< [n] of `out`, which is bf16 or f16 then; or null
};

/// Queues the product on the current stream of `device`. False, with nothing queued, where the card or the library has
/// no kernel for it: below compute capability 8.9 for fp8, for two e5m2 operands, and for sizes and rows that are not
/// multiples of 16;
/// and for scales by row before CUDA 12.9 and outside of compute capability 9.0.
bool scaled_gemm(const ScaledGemm& g, Device device);

}  // namespace strata::cuda
