#pragma once
// leaky_relu written over its argument.

#include "strata/core/tensor.h"

namespace strata {

/// x = leaky_relu(x, negative_slope), in place. For backward it keeps the result alone, whose sign is x's: throws
/// ValueError for a negative slope.
Tensor& leaky_relu_over(Tensor& x, double negative_slope = 0.01);

}  // namespace strata
