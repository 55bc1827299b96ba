#pragma once
// A matrix product on raw memory, of any device: matmul, linear, einsum and convolution all come down to one. cpu::gemm
// (gemm_cpu.h) and cuda::gemm (gemm_cuda.h) compute it.

#include <cstdint>

#include "strata/core/dims.h"
#include "strata/core/dtype.h"

namespace strata {

/// Applied to each element of a product before it is stored. gelu is the exact form, gelu_tanh the other;
/// gelu_tanh_grad multiplies by the latter's derivative at `aux`.
enum class Epilogue : uint8_t { none, relu, gelu, gelu_tanh, silu, gelu_tanh_grad };

/// C = epilogue(alpha * A B + beta * C + bias), for every index of `batch`.
///
/// A is [m, k], B is [k, n], C is [m, n]; element (i, l) of A lies at a[i * a_row + l * a_col] and so on: any strides,
/// transposed and expanded ones included, are taken as they are. C must not overlap A or B, nor itself.
/// Sums run in f32 for f32, bf16 and f16 (f64 for f64; integers wrap) and are rounded once, when stored.
struct Gemm {
  DType in = DType::f32;   ///< of A and B
  DType out = DType::f32;  ///< of C: `in`, or f32 where `in` is bf16 or f16
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t a_row = 0, a_col = 0;
  const void* b = nullptr;
  int64_t b_row = 0, b_col = 0;
  void* c = nullptr;
  int64_t c_row = 0, c_col = 1;
  Shape batch;                         ///< sizes of the batch dims; empty for one product
  Strides a_batch, b_batch, c_batch;   ///< their strides in elements; 0 where A or B is broadcast
  double alpha = 1, beta = 0;          ///< with beta = 0 C is not read
  const void* bias = nullptr;          ///< [n], contiguous, added to each row
  DType bias_dtype = DType::f32;       ///< `in` or `out`
  Epilogue epilogue = Epilogue::none;  ///< floating dtypes only
  /// A matrix like C (dtype, strides): gelu_tanh stores its argument there unless null, gelu_tanh_grad reads it.
  /// Takes no batch and no beta.
  void* aux = nullptr;
  /// f32 on a card: operands may be rounded to TF32 even where cuda::allow_tf32() is false.
  bool tf32 = false;
};

}  // namespace strata
