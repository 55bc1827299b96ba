#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Adagrad.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  ///< the rate of update t is lr / (1 + (t - 1) lr_decay)
  double eps = 1e-10;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adagrad (Duchi et al., 2011): s += g^2; p -= rate g / (sqrt(s) + eps). State: step, sum.
class Adagrad final : public OptimizerOf<AdagradOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
