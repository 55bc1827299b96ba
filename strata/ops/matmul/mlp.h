#pragma once
// The feed-forward layer of a GPT as one op: GELU (tanh form) and its derivative happen inside the products, so that
// the widest activations cross memory once less in each direction.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// linear(gelu(linear(x, up_weight, up_bias), "tanh"), down_weight, down_bias): x [.., in], up_weight [hidden, in],
/// down_weight [out, hidden] -> [.., out]; biases may be undefined. Throws ShapeError, DTypeError.
Tensor gelu_mlp(const Tensor& x, const Tensor& up_weight, const Tensor& up_bias, const Tensor& down_weight,
                const Tensor& down_bias);
/// The same numbers in the way that suits the device: gelu_mlp on a card, the three layers one after the other on the CPU,
/// where nothing is gained by joining them.
Tensor gelu_feed_forward(const Tensor& x, const Tensor& up_weight, const Tensor& up_bias, const Tensor& down_weight,
                         const Tensor& down_bias);
/// y = gelu(pre, "tanh") and pre = linear(x, weight, bias).
std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// gelu_backward(matmul(g, weight), pre, "tanh"): g [.., n], weight [n, k], pre [.., k].
Tensor matmul_gelu_grad(const Tensor& g, const Tensor& weight, const Tensor& pre);

}  // namespace strata
