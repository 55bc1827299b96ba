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
  static const OptimizerRecord& record();
};

/// Averaged gradient descent (Polyak & Juditsky, 1992): eta = lr / (1 + lambd lr (t - 1))^alpha; p = (1 - lambd eta) p
/// - eta g; ax += (p - ax) / max(1, t - 1 - t0). The average is state only: a network is tested with it by copying it
/// over the parameters. State: step, ax.
class ASGD final : public OptimizerOf<ASGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
