#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of NAdam.
struct NAdamOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  ///< p -= lr weight_decay p in place of L2
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adam with Nesterov's momentum (Dozat, 2016): mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2);
/// p -= lr ((1 - mu_t) / (1 - mu_1 ... mu_t) g + mu_t+1 / (1 - mu_1 ... mu_t+1) m) / (sqrt(v') + eps).
/// State: step, exp_avg, exp_avg_sq.
class NAdam final : public OptimizerOf<NAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
