#pragma once
#include "strata/core/tensor.h"

namespace strata {
void snake_cpu(Tensor& y, const Tensor& x, double a);
void snake_cuda(Tensor& y, const Tensor& x, double a);
}  // namespace strata
