#pragma once
// Linear layers between sharded tensors whose exchange lies beside the product: what tensor parallelism calls where
// positions lie in parts between its branches.

#include "strata/core/tensor.h"

namespace strata::distributed::detail {

/// linear(x, weight) of x [.., K], cut along `dim` in even parts, and weight [N, K], cut along dimension 0 on the same
/// single axis of the mesh: the result lies cut along its last dimension, as weight cuts it. As all_gather_matmul.
/// Throws ShapeError for tensors that lie otherwise.
Tensor gather_linear(const Tensor& x, const Tensor& weight, int64_t dim);
/// linear(x, weight, bias) of x [.., K], cut along its last dimension as weight [N, K] along dimension 1, and a plain
/// bias [N] or an undefined one: the sum, cut along `dim` in even parts. As matmul_reduce_scatter. Throws ShapeError for
/// tensors that lie otherwise.
Tensor linear_scatter(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t dim);
/// Whether these lie so, and pieces are worth an exchange of their own.
bool may_gather_linear(const Tensor& x, const Tensor& weight, int64_t dim);
bool may_linear_scatter(const Tensor& x, const Tensor& weight, int64_t dim);

}  // namespace strata::distributed::detail
