#pragma once
// The sLSTM of xLSTM as a module.

#include "strata/nn/module.h"
#include "strata/ops/rnn/slstm.h"

namespace strata::nn {

/// Of an SLSTM: output [T, B, hidden] and the last states [layers, B, hidden]: h, the cell divided by its normaliser,
/// and the normaliser's logarithm.
struct SlstmOutput {
  Tensor output, hidden, cell, log_normaliser;
};

/// Layers of the sLSTM (Beck et al., arXiv:2405.04517), as slstm() computes them: gates i, f, z, o, the first of them
/// an exponential. Parameters for layer l: weight_ih_l [4 hidden, input], weight_hh_l [4 hidden, hidden], bias_ih_l and
/// bias_hh_l [4 hidden], uniform in +- 1 / sqrt(hidden).
class SLSTM : public Module {
 public:
  /// Throws ValueError for sizes below 1.
  SLSTM(int64_t input_size, int64_t hidden_size, int64_t num_layers = 1, bool bias = true, bool batch_first = false);
  /// Draws the parameters again.
  void reset_parameters();
  /// `states` are {hidden, cell, log_normaliser} of an earlier call, or empty. Throws ShapeError, DTypeError.
  SlstmOutput forward(const Tensor& x, const TensorList& states = {}) const;
  SlstmOutput operator()(const Tensor& x, const TensorList& states = {}) const {
    const ModuleCall in(*this);
    return forward(x, states);
  }

 private:
  int64_t hidden_, layers_;
  bool bias_, batch_first_;
  TensorList weights_;  // as the record takes them
};

}  // namespace strata::nn
