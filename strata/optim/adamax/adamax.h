#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Adamax.
struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adamax (Kingma & Ba, 2015, section 7.1): m as Adam's; u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1^t) m / u.
/// State: step, exp_avg, exp_inf.
class Adamax final : public OptimizerOf<AdamaxOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
