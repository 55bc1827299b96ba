#pragma once
// Products of one row and one column.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues the product and returns true where it is one number, or a row of numbers, of a floating dtype, without bias
/// and epilogue. Sums depend on the sizes and on how the operands are aligned alone.
bool gemm_dot(const Gemm& g, Device device);

}  // namespace strata::cuda
