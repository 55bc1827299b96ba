#pragma once
#include "strata/core/tensor.h"

namespace strata {
void add_cpu(Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha);
void mul_cpu(Tensor& y, const Tensor& a, const Tensor& b);
void neg_cpu(Tensor& y, const Tensor& x);
}  // namespace strata
