#pragma once
// Matrix products. Operands may be strided or transposed views: they are read in place. Sums run in f32 for f32, bf16
// and f16, in f64 for f64; integers wrap. Operands must have one dtype, as in PyTorch; bool is not taken.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// PyTorch's matmul: [.., m, k] x [.., k, n] -> [.., m, n] with leading dimensions broadcast; a 1-dim operand is a row
/// (left) or column (right) whose dimension disappears from the result. Throws ShapeError, DTypeError.
Tensor matmul(const Tensor& a, const Tensor& b);
/// matmul whose bf16 or f16 operands give an f32 result: the sums as they are, unrounded. The way a weight's gradient
/// goes to an f32 master weight.
Tensor matmul_f32(const Tensor& a, const Tensor& b);
/// [m, k] x [k, n] -> [m, n].
Tensor mm(const Tensor& a, const Tensor& b);
/// [batch, m, k] x [batch, k, n] -> [batch, m, n], without broadcasting.
Tensor bmm(const Tensor& a, const Tensor& b);
/// [m, k] x [k] -> [m].
Tensor mv(const Tensor& a, const Tensor& x);
/// Sum of the products of two vectors of one length, a 0-dim tensor.
Tensor dot(const Tensor& a, const Tensor& b);
/// All products of the elements of two vectors: [m] and [n] give [m, n]; dtypes are promoted.
Tensor outer(const Tensor& a, const Tensor& b);
/// beta * input + alpha * a b for a [m, k] and b [k, n]; `input` broadcasts to [m, n] and is not read when beta is 0.
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
/// x weight^T + bias along the last dimension: x [.., in], weight [out, in], bias [out] or undefined -> [.., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Products and sums by Einstein's convention, as PyTorch's einsum: "bij,bjk->bik". Letters a-z and A-Z name
/// dimensions; "..." stands for further, broadcast ones; a letter repeated in one operand takes its diagonal; letters
/// that the result lacks are summed over. Without "->" the result has the letters met once, in alphabetical order,
/// after the dimensions of "...". Operands are contracted from left to right, in pairs, by matmul.
/// Throws ValueError for a malformed equation, ShapeError for sizes that do not agree.
Tensor einsum(const std::string& equation, const TensorList& operands);

}  // namespace strata
