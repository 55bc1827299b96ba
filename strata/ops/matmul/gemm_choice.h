#pragma once
// Which of cuBLASLt's kernels computes a product: the library's own guess for small ones, the fastest by the clock for
// large ones. What the clock said is kept on disk, so that it is asked once.

#include <type_traits>

#include "strata/core/device.h"
#include "strata/cuda/cublas_lt.h"

namespace strata::cuda {

/// What the choice depends on. Compared as bytes.
struct Problem {
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, ld_aux = 0, batches = 1, a_batch = 0, b_batch = 0,
          c_batch = 0;
  /// accumulates: 1 to C, 2 to something else.
  int32_t in = 0, out = 0, compute = 0, epilogue = 0, by_rows_a = 0, by_rows_b = 0, accumulates = 0, extra = 0;
  uint32_t align_a = 0, align_b = 0, align_c = 0, align_aux = 0;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batches);
  }
};
static_assert(std::has_unique_object_representations_v<Problem>);

/// cublasLtMatmul's arguments, ours transposed: `a` is B of Problem.
struct LtCall {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a_layout, b_layout, c_layout;
  const void *alpha, *beta, *a, *b;
  void* c;
  const void* start = nullptr;  ///< what the product is added to where that is not c
  cublasLtMatrixLayout_t start_layout = nullptr;

  const void* added_to() const { return start != nullptr ? start : c; }
  cublasLtMatrixLayout_t added_layout() const { return start != nullptr ? start_layout : c_layout; }
};

struct Choice {
  bool found = false;  ///< else cuBLASLt has no kernel
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;  ///< bytes
};

/// The choice for `problem` on the current stream of `device`: what was chosen before (by this process, or by an
/// earlier one and put down on disk), else a search, else the library's first guess. A search runs the candidates into
/// `call.c` and waits for them; it takes place for products from 2 GFLOP on, where its result can be put down, outside
/// of graph capture, and unless STRATA_MATMUL_SEARCH is 0 at the start of the program.
Choice choose(const Problem& problem, const LtCall& call, Device device);

/// Queues `call` with the chosen kernel. False, with nothing queued, where there is none.
bool run_chosen(const LtCall& call, const Choice& choice, Device device);

}  // namespace strata::cuda
