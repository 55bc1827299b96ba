#pragma once
// The sLSTM of xLSTM: a recurrent layer with an exponential input gate and a normaliser.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Layers of the sLSTM (Beck et al., arXiv:2405.04517) over input [T, B, in] ([B, T, in] with batch_first): gates i, f,
/// z, o = W_ih x + b_ih + W_hh h + b_hh, c' = f c + i z, n' = f n + i, h' = sigmoid(o) c' / n' with i = exp of its
/// gate, f = sigmoid and z = tanh of theirs. Of the states c and n what counts is kept: c / n and log n, which do not
/// overflow. hx is {h, c / n, log n}, each [layers, B, hidden], or empty for a cell that has seen nothing. `params`
/// holds for each layer W_ih [4 hidden, in], W_hh [4 hidden, hidden] and, with has_biases, b_ih and b_hh. Returns the
/// last layer's output and the last states. c / n and log n are f32 where the input has 16 bits. Throws ShapeError,
/// DTypeError, ValueError.
std::tuple<Tensor, Tensor, Tensor, Tensor> slstm(const Tensor& input, const TensorList& hx, const TensorList& params,
                                                 bool has_biases = true, int64_t num_layers = 1,
                                                 bool batch_first = false);

}  // namespace strata
