#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of SGD; the defaults are PyTorch's.
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  ///< added to the gradient (L2)
  bool nesterov = false;    ///< needs momentum and no dampening
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Gradient descent with momentum, PyTorch's form: g += weight_decay p; b = momentum b + (1 - dampening) g (b = g the
/// first time); p -= lr b, or with Nesterov's p -= lr (g + momentum b) (Sutskever et al., 2013).
/// State: momentum_buffer, when momentum is not 0.
class SGD final : public OptimizerOf<SGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
