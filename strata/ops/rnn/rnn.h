#pragma once
// Recurrent layers over whole sequences, and their cells. Gate order, arguments and shapes are PyTorch's.

#include <optional>
#include <string>
#include <tuple>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// Of a recurrent layer's call; the defaults are PyTorch's.
struct RecurrentArguments {
  bool has_biases = true;
  int64_t num_layers = 1;
  double dropout = 0;  ///< on what every layer but the last gives, where `train` is set
  bool train = false;
  bool bidirectional = false;
  bool batch_first = false;  ///< [B, T, ..] instead of [T, B, ..] for input and output
  /// Where defined: the input is packed, [total of the lengths, in]: the first step of all sequences, the longest
  /// first, then the second of those that have one, and so on; i64 [T] says how many have each step.
  Tensor batch_sizes = {};
  std::optional<RngKey> key = {};  ///< of the dropout; drawn from default_generator() where not given
};

/// Layers of h' = tanh(W_ih x + b_ih + W_hh h + b_hh) over input [T, B, in], [T, in] or packed. hx is
/// [layers directions, B, hidden], or undefined for zeros. `params` holds, for each layer and direction, W_ih
/// [hidden, in], W_hh [hidden, hidden] and, with has_biases, b_ih and b_hh [hidden]; a layer after the first reads
/// what the directions of the one before give, side by side. Returns the last layer's output [T, B, directions hidden]
/// and the last hidden state of each layer and direction. Throws ShapeError, ValueError.
std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& input, const Tensor& hx, const TensorList& params,
                                    const RecurrentArguments& options = {});
/// rnn_tanh() with relu in tanh's place.
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& input, const Tensor& hx, const TensorList& params,
                                    const RecurrentArguments& options = {});
/// rnn_tanh() with the gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et al.,
/// arXiv:1406.1078). The parameters' rows are 3 hidden.
std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, const TensorList& params,
                               const RecurrentArguments& options = {});
/// rnn_tanh() with the gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter
/// and Schmidhuber 1997). The parameters' rows are 4 hidden; hx is {h, c} or empty for zeros. With one more matrix W_hr
/// [projection, hidden] at the end of each direction's parameters, h is W_hr h' (Sak et al., arXiv:1402.1128) and W_hh
/// [4 hidden, projection]. Returns output, h and c.
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, const TensorList& hx, const TensorList& params,
                                        const RecurrentArguments& options = {});

/// One step of rnn_tanh() for input [B, in] (or [in]) and hx [B, hidden] (or [hidden]; undefined for zeros): the next
/// h. Throws ShapeError.
Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// One step of rnn_relu().
Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// One step of gru().
Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = {},
                const Tensor& b_hh = {});
/// One step of lstm() from hx = {h, c} (or empty for zeros): the next h and c.
std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, const TensorList& hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih = {}, const Tensor& b_hh = {});

/// Sequences [T_i, ..] as one tensor [T, B, ..] ([B, T, ..] with batch_first), the ends (or with padding_side "left"
/// the beginnings) of the shorter ones `padding_value`. Throws ShapeError, ValueError.
Tensor pad_sequence(const TensorList& sequences, bool batch_first = false, double padding_value = 0,
                    const std::string& padding_side = "right");
/// Packs [T, B, ..] ([B, T, ..] with batch_first) by the sequences' lengths, i64 [B], which must not rise: the data
/// [total of the lengths, ..], and how many sequences have each step, i64 [T] on the CPU. Throws ShapeError,
/// ValueError.
std::tuple<Tensor, Tensor> pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first = false);
/// Undoes pack_padded_sequence(): the padded tensor, of total_length steps where given, and the lengths, i64 [B] on the
/// CPU. Throws ShapeError, ValueError.
std::tuple<Tensor, Tensor> pad_packed_sequence(const Tensor& data, const Tensor& batch_sizes, bool batch_first = false,
                                               double padding_value = 0, std::optional<int64_t> total_length = {});

}  // namespace strata
