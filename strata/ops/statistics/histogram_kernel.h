#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// How many elements of x lie in each of `bins` equal parts of [low, high], i64. In a build with CUDA.
Tensor histc_cuda(const Tensor& x, int64_t bins, double low, double high);

}  // namespace strata
