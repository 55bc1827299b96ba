#pragma once
// Recurrent layers. Parameter names, gate order, shapes and initialisation are PyTorch's.

#include <string>
#include <utility>

#include "strata/nn/module.h"

namespace strata::nn {

/// Of RNN, LSTM and GRU; the defaults are PyTorch's.
struct RnnOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  ///< [B, T, ..] instead of [T, B, ..] for input and output
  double dropout = 0;        ///< on the output of every layer but the last, in training
  bool bidirectional = false;
  std::string nonlinearity = "tanh";  ///< RNN only: "tanh" or "relu"
};

/// Of an RNN or GRU: output [T, B, dirs hidden] and the last hidden state [layers dirs, B, hidden].
struct RnnOutput {
  Tensor output, hidden;
};
/// Of an LSTM: also the last cell state.
struct LstmOutput {
  Tensor output, hidden, cell;
};

/// What the three share. Parameters, for layer l and "" or "_reverse": weight_ih_l [gates hidden, input],
/// weight_hh_l [gates hidden, hidden], bias_ih_l, bias_hh_l [gates hidden], uniform in +- 1 / sqrt(hidden).
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

 private:
  struct Weights {
    Tensor ih, hh, bias_ih, bias_hh;
  };
  Tensor run_direction(const Weights& w, const Tensor& x, Tensor& h, Tensor& c, bool reverse) const;

  Cell cell_;
  int64_t input_, hidden_;
  RnnOptions options_;
  std::vector<Weights> weights_;  // layer by layer, forward before reverse
};

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
class RNN : public RecurrentBase {
 public:
  RNN(int64_t input_size, int64_t hidden_size, const RnnOptions& options = {})
      : RecurrentBase("RNN", Cell::rnn, input_size, hidden_size, options) {}
  RnnOutput forward(const Tensor& x, const Tensor& hidden = {}) const;
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
  RnnOutput operator()(const Tensor& x, const Tensor& hidden = {}) const {
    const ModuleCall in(*this);
    return forward(x, hidden);
  }
};

}  // namespace strata::nn
