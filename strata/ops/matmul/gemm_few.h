#pragma once
// Products of one to four rows with a matrix whose rows lie along the sum: what a step of generation is made of.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues the product, with a bias and any alpha and beta, and returns true, where A has at most four rows of bf16 or
/// f16, and B's columns are dense and aligned. All of its time is that of reading B: the library's kernels for it
/// reach less of the memory's speed. Sums of a row depend on k alone.
bool gemm_few(const Gemm& g, Device device);

}  // namespace strata::cuda
