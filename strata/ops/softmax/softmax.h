#pragma once
// Softmax and its logarithm.

#include "strata/core/tensor.h"

namespace strata {

/// exp(x) divided by its sum along `dim`; x's shape and dtype. The maximum is subtracted first, so that large values do
/// not overflow. Throws IndexError if dim is out of range, DTypeError unless x is floating.
///   Tensor p = softmax(scores, -1);
Tensor softmax(const Tensor& x, int64_t dim);
/// log(softmax(x, dim)), computed as x - logsumexp(x).
Tensor log_softmax(const Tensor& x, int64_t dim);

/// The gradient of softmax from its result `y`: y * (gy - sum(gy * y)).
Tensor softmax_backward(const Tensor& gy, const Tensor& y, int64_t dim);
/// The gradient of log_softmax from its result `y`: gy - exp(y) * sum(gy).
Tensor log_softmax_backward(const Tensor& gy, const Tensor& y, int64_t dim);

}  // namespace strata
