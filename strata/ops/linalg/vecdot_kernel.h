#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// to = the sums of x * y along dim on a CUDA device; x and y have one shape and dtype and any strides, `to` that shape
/// without dim. Halves are multiplied and added up in f32, integers wrap around. False, with nothing done, where sums
/// of a tensor of products are faster: along dimensions that are not near in memory, and of few long vectors.
bool vecdot_cuda(const Tensor& to, const Tensor& x, const Tensor& y, int64_t dim);

}  // namespace strata
