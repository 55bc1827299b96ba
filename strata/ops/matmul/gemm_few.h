#pragma once
// Products of one row with a matrix whose rows lie along the sum: what a step of generation is made of.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues the product, with a bias and any alpha and beta, and returns true, where A is one row of bf16 or f16, and
/// B's columns are dense and aligned. All of its time is that of reading B. Sums depend on k alone.
bool gemm_few(const Gemm& g, Device device);

}  // namespace strata::cuda
