#pragma once
#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// y = g where x > 0, else g times lower + (upper - lower) u with number i of the key's stream for element i. Tensors
/// of one floating dtype and shape.
void rrelu_apply_cpu(Tensor& y, const Tensor& g, const Tensor& x, double lower, double upper, RngKey key);
void rrelu_apply_cuda(Tensor& y, const Tensor& g, const Tensor& x, double lower, double upper, RngKey key);

}  // namespace strata
