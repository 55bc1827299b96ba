#pragma once
// The one matrix product of the CPU engine, on raw memory: matmul, linear, einsum and convolution all end here.

#include <cstdint>

#include "strata/core/dims.h"
#include "strata/core/dtype.h"

namespace strata::cpu {

/// Applied to each element of a product before it is stored. gelu is the exact form, gelu_tanh the other;
/// gelu_tanh_grad multiplies by the latter's derivative at `aux`.
enum class Epilogue : uint8_t { none, relu, gelu, gelu_tanh, silu, gelu_tanh_grad };

/// Which implementation computes a product; `best` decides from the sizes, dtypes and processor.
enum class GemmBackend : uint8_t { best, blocked, onednn, avx512_bf16, amx };

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
};

/// Computes `g` on all threads (on the calling one inside a parallel loop). `backend` forces an implementation, for
/// tests and benchmarks. Throws DTypeError for a combination of dtypes not listed above, ValueError for a forced
/// backend that this processor or this product's dtype lacks.
void gemm(const Gemm& g, GemmBackend backend = GemmBackend::best);

namespace detail {
/// Cache-blocked kernel for every dtype and any strides; g.batch may hold any dims.
void gemm_blocked(const Gemm& g);
/// C = epilogue(alpha * sum + beta * C + bias) for a finished [m, n] sum of A B in f32 (f64 for f64); ignores g.batch.
void gemm_finish(const Gemm& g, const void* sum);
/// oneDNN's kernel, on the calling thread. False, with nothing done, where oneDNN lacks one. g.batch has at most one
/// dim and A, B are row- or column-major without overlap, C row-major. With `ask` it only says whether there is one.
bool gemm_onednn(const Gemm& g, bool ask = false);
/// Our own kernel for bf16 inputs, with AMX tiles or AVX512-BF16 dot products. False, with nothing done, where the
/// processor lacks them, or for a batch or exact GELU. Wants the same layouts as gemm_onednn.
bool gemm_bf16(const Gemm& g, bool amx);
/// to[i] = gelu_tanh(from[i]), or with `slope` to[i] *= its derivative at from[i], for n contiguous elements.
void gelu_tanh_run(DType t, bool slope, const void* from, void* to, int64_t n);
}  // namespace detail

}  // namespace strata::cpu
