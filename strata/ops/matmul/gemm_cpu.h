#pragma once
// The one matrix product of the CPU engine.

#include "strata/ops/matmul/gemm.h"

namespace strata::cpu {

/// Which implementation computes a product; `best` decides from the sizes, dtypes and processor.
enum class GemmBackend : uint8_t { best, blocked, onednn, avx512_bf16, amx };

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
/// f32 products by rows of C, with B packed once for all of them; on all threads. False, with nothing done, where
/// oneDNN has no kernel for that, or where it would not pay. g.batch has at most one dim, C is row-major.
bool gemm_rows(const Gemm& g);
/// B [k, n] as oneDNN's f32 kernel for AVX-512 reads it: blocks of 64 columns, in each rows by 16, ending in zeros. The
/// number of floats; packing, on all threads, where one of the strides is 1.
int64_t packed_b_size(int64_t k, int64_t n);
void pack_b(const float* b, int64_t b_row, int64_t b_col, int64_t k, int64_t n, float* to);
/// As gemm_onednn, of f32, with B packed so (g.b_row and g.b_col are not read); A and C are row-major, their rows one
/// behind another, without a batch.
bool gemm_packed(const Gemm& g, bool ask = false);
/// Kernels that oneDNN was asked to compile so far, for tests: few, whatever sizes data brings.
int64_t gemm_kernels_made();
/// Our own kernel for bf16 inputs, with AMX tiles or AVX512-BF16 dot products. False, with nothing done, where the
/// processor lacks them, or for a batch or exact GELU. Wants the same layouts as gemm_onednn.
bool gemm_bf16(const Gemm& g, bool amx);
/// Bytes of scratch that gemm_bf16 takes on the calling thread for `g`; 0 where the processor lacks it.
int64_t gemm_bf16_scratch(const Gemm& g);
/// to[i] = gelu_tanh(from[i]), or with `slope` to[i] *= its derivative at from[i], for n contiguous elements.
void gelu_tanh_run(DType t, bool slope, const void* from, void* to, int64_t n);
}  // namespace detail

}  // namespace strata::cpu
