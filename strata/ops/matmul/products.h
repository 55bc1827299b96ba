#pragma once
// Small products, all composed of matmul. Operands must have one dtype, as in PyTorch; integers take integer factors.

#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// beta * input + alpha * mat vec for mat [m, k] and vec [k]; `input` broadcasts to [m] and is not read when beta is 0.
Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta = 1, Scalar alpha = 1);
/// beta * input + alpha * vec1 vec2^T; `input` broadcasts to [m, n] and is not read when beta is 0.
Tensor addr(const Tensor& input, const Tensor& vec1, const Tensor& vec2, Scalar beta = 1, Scalar alpha = 1);
/// beta * input + alpha * the sum of batch1[i] batch2[i]; `input` broadcasts to [m, n] and is not read when beta is 0.
Tensor addbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1, Scalar alpha = 1);
/// beta * input + alpha * batch1 batch2, matrix by matrix; `input` broadcasts and is not read when beta is 0.
Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1, Scalar alpha = 1);
/// Sums of products over the last dimension of both: [.., k] and [.., k]. A 0-dim operand multiplies.
Tensor inner(const Tensor& a, const Tensor& b);
/// dot: there are no complex numbers.
Tensor vdot(const Tensor& a, const Tensor& b);
/// Sums of products over the dimensions `dims_a` of a and `dims_b` of b, taken in pairs.
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
/// The same over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
/// x1^T weight[o] x2 + bias[o] for every o: x1 [.., k], x2 [.., l], weight [out, k, l], bias [out] or undefined ->
/// [.., out].
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {});
/// Every element of a times the whole of b, as blocks; the smaller rank is filled up with ones in front.
Tensor kron(const Tensor& a, const Tensor& b);
/// The p-norm of a - b, over all elements.
Tensor dist(const Tensor& a, const Tensor& b, double p = 2);

}  // namespace strata
