#pragma once
// Distances of all pairs of rows, and their gradient, without the pairs' differences in memory.

#include "strata/core/tensor.h"

namespace strata {

/// y = the p-norms, p 1 or 2, of the differences of rows i < j of x.
void pdist_cpu(Tensor& y, const Tensor& x, double p);
/// gx = the gradient of <g, pdist(x, p)>, p 1 or 2, y being pdist(x, p); nothing flows where that is 0.
void pdist_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& y, double p);
// The same on a CUDA device, p any number above 0.
void pdist_cuda(Tensor& y, const Tensor& x, double p);
void pdist_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& y, double p);

}  // namespace strata
