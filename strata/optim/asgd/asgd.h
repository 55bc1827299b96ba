#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of ASGD.
struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;      ///< decay of the parameters and of the rate
  double alpha = 0.75;      ///< power of the rate's decay
  double t0 = 1e6;          ///< the update after which the average begins
  double weight_decay = 0;  ///< added to the gradient (L2)
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  /// What is known of the optimizer.
  static const OptimizerRecord& record();
};

/// Averaged gradient descent (Polyak & Juditsky, 1992), update t: p = (1 - lambd eta) p - eta g; ax += (p - ax) /
/// max(1, t - 1 - t0); eta = lr / (1 + lambd lr t)^alpha, at first lr. So another lr is heard one update later, as in
/// PyTorch. The average is state only: a network is tested with it by copying it over the parameters. State: step, eta
/// (f64), ax.
class ASGD final : public OptimizerOf<ASGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
