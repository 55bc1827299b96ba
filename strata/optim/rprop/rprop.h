#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Rprop.
struct RpropOptions {
  double lr = 1e-2;       ///< every element's first step
  double etaminus = 0.5;  ///< a step's factor where its gradient has turned, in (0, 1)
  double etaplus = 1.2;   ///< and where it has not, above 1
  double step_size_min = 1e-6;
  double step_size_max = 50;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Rprop (Riedmiller & Braun, 1993), for gradients of all the data: an element moves against its gradient's sign by a
/// step of its own, s = clamp(etaplus s) where the sign is the last one's; where it turned, s = clamp(etaminus s) and
/// the gradient counts as 0, now and as the next one's last. lr is read at the first update alone. State: step, prev,
/// step_size.
class Rprop final : public OptimizerOf<RpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
