#pragma once
// Kernels of the matrix-product records.

#include "strata/core/tensor.h"

namespace strata::cpu {

void matmul(Tensor& y, const Tensor& a, const Tensor& b);
void addmm(Tensor& y, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha);
void linear(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace strata::cpu
