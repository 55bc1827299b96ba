#pragma once
// Kernels of the matrix-product records, on any device.

#include "strata/core/tensor.h"

namespace strata {
class Backward;
/// Sets the gradient of input `i`, the weight [out, in] of a layer, from gy [rows, out] and x [rows, in]; in f32 where
/// that goes to a parameter's cast.
void set_weight_gradient(Backward& bw, int i, const Tensor& gy, const Tensor& x);
}  // namespace strata

namespace strata::cpu {

void matmul(Tensor& y, const Tensor& a, const Tensor& b);
void addmm(Tensor& y, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha);
void linear(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// y = gelu_tanh(pre), pre = linear(x, weight, bias).
void linear_gelu(Tensor& y, Tensor& pre, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// y = (g weight) * gelu_tanh'(pre).
void matmul_gelu_grad(Tensor& y, const Tensor& g, const Tensor& weight, const Tensor& pre);

}  // namespace strata::cpu
