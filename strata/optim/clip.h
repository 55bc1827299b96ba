#pragma once
// Clipping by norms of any order. Those of order 2, which are computed in one pass, are in optimizer.h.

#include "strata/core/tensor.h"

namespace strata::optim {

/// The joint norm of order `p` of all gradients of `params`, total_norm() of them; 0 when there is none.
double grad_norm(const TensorList& params, double p);
/// clip_grad_norm() by the norm of order `p`: inf bounds the largest magnitude. A norm that is not finite leaves the
/// gradients unchanged; returns the norm before. Throws ValueError unless max_norm is positive.
double clip_grad_norm(const TensorList& params, double max_norm, double p);
/// Scales the gradients of `params` in place by max_norm / total_norm where that is below 1. `total_norm` is one
/// number; nothing waits for it.
void clip_grads_with_norm(const TensorList& params, double max_norm, const Tensor& total_norm);

}  // namespace strata::optim
