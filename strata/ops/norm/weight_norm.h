#pragma once
// Weights as lengths times directions, weights with a batch norm in them, the norm of several tensors.

#include <optional>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// The p-norms of v over all dimensions but `dim`, which stay with size 1; of all elements without one or with -1.
/// Throws IndexError.
Tensor norm_except_dim(const Tensor& v, double p = 2, std::optional<int64_t> dim = 0);
/// v with the lengths g in place of its own, norm_except_dim(v, 2, dim) (arXiv:1602.07868). Throws IndexError.
Tensor weight_norm(const Tensor& v, const Tensor& g, std::optional<int64_t> dim = 0);

/// The p-norm of the tensors' p-norms, as gradients are clipped by it: of all their elements together but for p 0,
/// which counts the tensors that are not zero. f64 where one of them is, else f32; 0 without tensors. Throws
/// DTypeError.
Tensor total_norm(const TensorList& tensors, double p = 2);

/// Weight and bias of the layer (weight, bias) with the batch norm after it, in evaluation, folded in: `dim` of the
/// weight has the channels. `bias`, `scale` and `shift` may be undefined. Throws ShapeError, IndexError, DTypeError.
std::tuple<Tensor, Tensor> fold_batch_norm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                                           const Tensor& var, double eps = 1e-5, const Tensor& scale = {},
                                           const Tensor& shift = {}, int64_t dim = 0);

}  // namespace strata
