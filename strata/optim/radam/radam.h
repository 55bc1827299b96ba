#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of RAdam.
struct RAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< p -= lr weight_decay p in place of L2
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Rectified Adam (Liu et al., 2020): the step is scaled by the variance that the second moment has after few updates,
/// and does without it in the first ones. State: step, exp_avg, exp_avg_sq.
class RAdam final : public OptimizerOf<RAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
