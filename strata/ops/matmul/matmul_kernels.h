#pragma once
// What gradient rules of matrix products share.

#include "strata/core/tensor.h"

namespace strata {
class Backward;
/// Sets the gradient of input `i`, of shape `shape`, to the product a b of matrices or of equally long batches of them:
/// added within the product to what other ops gave the input, where the pass allows that (Backward::gathered); in f32
/// where it goes to autocast's cast.
void set_product_gradient(Backward& bw, int i, const Tensor& a, const Tensor& b, const Shape& shape);
/// Sets the gradient of input `i`, the weight [out, in] of a layer, from gy [rows, out] and x [rows, in]; in f32 where
/// that goes to a parameter's cast.
void set_weight_gradient(Backward& bw, int i, const Tensor& gy, const Tensor& x);
/// Sets those of a layer's weight (input 1) and bias (input 2), as far as they are wanted, from the same rows.
void set_layer_gradients(Backward& bw, const Tensor& gy, const Tensor& x);
}  // namespace strata
