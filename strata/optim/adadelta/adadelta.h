#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Adadelta.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  ///< decay of both averages
  double eps = 1e-6;
  double weight_decay = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adadelta (Zeiler, 2012): v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2;
/// p -= lr d. State: square_avg (v), acc_delta (u).
class Adadelta final : public OptimizerOf<AdadeltaOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
