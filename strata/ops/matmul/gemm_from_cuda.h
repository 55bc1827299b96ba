#pragma once
// Products of a batch that are all added to one matrix.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// C = alpha * A B + beta * start for every index of `batch`: cuda::gemm() with `start` [m, n], rows as far apart as
/// C's and of its dtype, read in the place of C. One matrix, which stays in the L2 cache, rather than as many as the
/// batch has. False, with nothing queued, without a batch of one dim, for few rows or columns, and where the library
/// has no kernel for it. Throws DTypeError as cuda::gemm() does, ValueError for a bias, an epilogue or a beta of 0.
bool gemm_from(const Gemm& g, const void* start, Device device);

}  // namespace strata::cuda
