#pragma once
#include "strata/core/tensor.h"

namespace strata {
/// x + sin(a x)^2 / a, elementwise (Ziyin et al., 2020, arXiv:2006.08195), for floating x of any shape. ValueError
/// unless a is finite and not 0, DTypeError for integers.
Tensor snake(const Tensor& x, double a = 1);
}  // namespace strata
