#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// y = constant + the sum of lgamma(x - j / 2) for j from 0 to p - 1, summed in f64; y and x of one floating dtype and
/// shape, on a CUDA device.
void mvlgamma_cuda(Tensor& y, const Tensor& x, int64_t p, double constant);

}  // namespace strata
