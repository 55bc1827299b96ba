#pragma once
// What gradient rules of matrix products share.

#include "strata/core/tensor.h"

namespace strata {
class Backward;
/// Sets the gradient of input `i`, the weight [out, in] of a layer, from gy [rows, out] and x [rows, in]; in f32 where
/// that goes to a parameter's cast.
void set_weight_gradient(Backward& bw, int i, const Tensor& gy, const Tensor& x);
}  // namespace strata
