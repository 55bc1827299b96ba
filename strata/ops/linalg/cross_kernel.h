#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// z = the cross products of a and b, which broadcast to z, along dim, which has three elements.
void cross_cuda(Tensor& z, const Tensor& a, const Tensor& b, int64_t dim);

}  // namespace strata
