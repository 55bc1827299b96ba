#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Lion.
struct LionOptions {
  double lr = 1e-4;  ///< 3 to 10 times less than AdamW's
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled; 3 to 10 times more than AdamW's
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): c = beta1 m + (1 - beta1) g;
/// p -= lr (sign(c) + weight_decay p); m = beta2 m + (1 - beta2) g. State: exp_avg.
class Lion final : public OptimizerOf<LionOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
