#pragma once
// Products with matrices of few bits a number.

#include "strata/core/tensor.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata {

/// W [rows, columns] as `dtype` (floating): each number decoded in f32 (f64: in double), then rounded once. Throws as
/// PackedWeight::check(); DTypeError. Not differentiable.
Tensor dequantize_weight(const PackedWeight& w, DType dtype = DType::f32);

/// x W^T + bias: x [.., columns] -> [.., rows], of x's dtype. Sums of x and W's decoded numbers in f32 (f64 for f64);
/// with more than 32 rows of x, those numbers are rounded to x's dtype first. Gradients reach x and bias, not W. Throws
/// ShapeError, DTypeError, ValueError.
Tensor packed_linear(const Tensor& x, const PackedWeight& w, const Tensor& bias = {});

/// g W: g [.., rows] -> [.., columns], of g's dtype: the gradient of packed_linear for x. W's numbers are rounded to
/// g's dtype. Differentiable for g. Throws ShapeError, DTypeError, ValueError.
Tensor packed_matmul(const Tensor& g, const PackedWeight& w);

}  // namespace strata
