#pragma once
// Recurrent layers and cells: they hold parameters; the records of strata/ops/rnn compute. Parameter names, gate order,
// shapes and initialisation are PyTorch's.

#include <string>
#include <tuple>
#include <utility>

#include "strata/nn/module.h"
#include "strata/ops/rnn/rnn.h"

namespace strata::nn {

/// Of RNN, LSTM and GRU; the defaults are PyTorch's.
struct RnnOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  ///< [B, T, ..] instead of [T, B, ..] for input and output
  double dropout = 0;        ///< on the output of every layer but the last, in training
  bool bidirectional = false;
  std::string nonlinearity = "tanh";  ///< RNN only: "tanh" or "relu"
  int64_t proj_size = 0;              ///< LSTM only: h is a projection of this size; 0 for none
};

/// Sequences of different lengths without padding, as pack_padded_sequence() of strata/ops/rnn/rnn.h lays them out.
struct PackedSequence {
  Tensor data, batch_sizes;
  Tensor sorted_indices = {};  ///< i64 [B]: which sequence of the caller stands at each place; undefined: its own order

  /// Packs [T, B, ..] ([B, T, ..] with batch_first) whose sequences have `lengths`, i64 [B], in any order. Throws
  /// ShapeError, ValueError.
  static PackedSequence pack(const Tensor& padded, const Tensor& lengths, bool batch_first = false);
  /// The padded tensor and the lengths, in the caller's order.
  std::tuple<Tensor, Tensor> pad(bool batch_first = false, double padding_value = 0) const;
};

/// Of an RNN or GRU: output [T, B, dirs hidden] and the last hidden state [layers dirs, B, hidden].
struct RnnOutput {
  Tensor output, hidden;
};
/// Of an LSTM: also the last cell state.
struct LstmOutput {
  Tensor output, hidden, cell;
};
/// Of a packed input: the output is packed alike; states are in the caller's order.
struct PackedOutput {
  PackedSequence output;
  Tensor hidden, cell;
};

/// What the three share. Parameters, for layer l and "" or "_reverse": weight_ih_l [gates hidden, input],
/// weight_hh_l [gates hidden, hidden], bias_ih_l, bias_hh_l [gates hidden], and with proj_size weight_hr_l
/// [proj_size, hidden], uniform in +- 1 / sqrt(hidden).
class RecurrentBase : public Module {
 public:
  /// Draws the parameters again.
  void reset_parameters();
  int64_t hidden_size() const { return hidden_; }

 protected:
  enum class Cell { rnn, lstm, gru };
  /// Throws ValueError for sizes below 1 or an unknown nonlinearity.
  RecurrentBase(std::string_view kind, Cell cell, int64_t input_size, int64_t hidden_size, const RnnOptions& options);
  /// States [layers dirs, B, hidden] or undefined for zeros. Throws ShapeError.
  LstmOutput run(const Tensor& x, const Tensor& hidden, const Tensor& cell) const;
  PackedOutput run(const PackedSequence& x, const Tensor& hidden, const Tensor& cell) const;

 private:
  LstmOutput call(const Tensor& x, const Tensor& hidden, const Tensor& cell, const Tensor& batch_sizes) const;

  Cell cell_;
  int64_t hidden_;
  RnnOptions options_;
  TensorList weights_;  // as the records take them
};

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
class RNN : public RecurrentBase {
 public:
  RNN(int64_t input_size, int64_t hidden_size, const RnnOptions& options = {})
      : RecurrentBase("RNN", Cell::rnn, input_size, hidden_size, options) {}
  RnnOutput forward(const Tensor& x, const Tensor& hidden = {}) const;
  PackedOutput forward(const PackedSequence& x, const Tensor& hidden = {}) const { return run(x, hidden, {}); }
  RnnOutput operator()(const Tensor& x, const Tensor& hidden = {}) const {
    const ModuleCall in(*this);
    return forward(x, hidden);
  }
};

/// Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter and Schmidhuber
/// 1997).
class LSTM : public RecurrentBase {
 public:
  LSTM(int64_t input_size, int64_t hidden_size, const RnnOptions& options = {})
      : RecurrentBase("LSTM", Cell::lstm, input_size, hidden_size, options) {}
  LstmOutput forward(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {}) const {
    return run(x, hidden, cell);
  }
  PackedOutput forward(const PackedSequence& x, const Tensor& hidden = {}, const Tensor& cell = {}) const {
    return run(x, hidden, cell);
  }
  LstmOutput operator()(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {}) const {
    const ModuleCall in(*this);
    return forward(x, hidden, cell);
  }
};

/// Gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et al., arXiv:1406.1078).
class GRU : public RecurrentBase {
 public:
  GRU(int64_t input_size, int64_t hidden_size, const RnnOptions& options = {})
      : RecurrentBase("GRU", Cell::gru, input_size, hidden_size, options) {}
  RnnOutput forward(const Tensor& x, const Tensor& hidden = {}) const;
  PackedOutput forward(const PackedSequence& x, const Tensor& hidden = {}) const { return run(x, hidden, {}); }
  RnnOutput operator()(const Tensor& x, const Tensor& hidden = {}) const {
    const ModuleCall in(*this);
    return forward(x, hidden);
  }
};

/// What the cells share: weight_ih [gates hidden, input], weight_hh [gates hidden, hidden], bias_ih and bias_hh
/// [gates hidden], uniform in +- 1 / sqrt(hidden).
class CellBase : public Module {
 public:
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  /// Throws ValueError for sizes below 1.
  CellBase(std::string_view kind, int64_t gates, int64_t input_size, int64_t hidden_size, bool bias);
};

/// One step of RNN with tanh: input [B, in] or [in] -> the next h.
class RNNCell : public CellBase {
 public:
  RNNCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : CellBase("RNNCell", 1, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x, const Tensor& hidden = {}) const {
    return rnn_tanh_cell(x, hidden, weight_ih, weight_hh, bias_ih, bias_hh);
  }
  Tensor operator()(const Tensor& x, const Tensor& hidden = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, hidden); });
  }
};

/// One step of GRU.
class GRUCell : public CellBase {
 public:
  GRUCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : CellBase("GRUCell", 3, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x, const Tensor& hidden = {}) const {
    return gru_cell(x, hidden, weight_ih, weight_hh, bias_ih, bias_hh);
  }
  Tensor operator()(const Tensor& x, const Tensor& hidden = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, hidden); });
  }
};

/// One step of LSTM: the next (h, c). Both states or none are given.
class LSTMCell : public CellBase {
 public:
  LSTMCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : CellBase("LSTMCell", 4, input_size, hidden_size, bias) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {}) const {
    return lstm_cell(x, hidden.defined() ? TensorList{hidden, cell} : TensorList(), weight_ih, weight_hh, bias_ih,
                     bias_hh);
  }
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {}) const {
    const ModuleCall in(*this);
    return forward(x, hidden, cell);
  }
};

}  // namespace strata::nn
