#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Adam; the defaults are PyTorch's.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< Adam: added to the gradient (L2); AdamW: p -= lr weight_decay p
  bool amsgrad = false;     ///< divides by the largest second moment so far (Reddi et al., 2018)
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adam (Kingma & Ba, 2015): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// p -= lr m' / (sqrt(v') + eps) with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t).
/// State: step, exp_avg, exp_avg_sq, and with amsgrad max_exp_avg_sq.
class Adam final : public OptimizerOf<AdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
