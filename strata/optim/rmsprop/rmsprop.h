#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of RMSprop.
struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< decay of the average of squares
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient (L2), as in the others of this file
  double momentum = 0;
  bool centered = false;  ///< divides by the gradients' deviation from their average
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// RMSprop (Tieleman & Hinton, 2012; centered: Graves, 2013): v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) +
/// eps), or through a buffer b = momentum b + g / (sqrt(v) + eps). State: square_avg; momentum_buffer with momentum or
/// centered; grad_avg with centered.
class RMSprop final : public OptimizerOf<RMSpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
