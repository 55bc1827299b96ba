#pragma once
// Loss scaling: gradients of f16 below 6e-8 would be zero, so the loss is multiplied by a large number before backward
// and the gradients are divided by it again (Micikevicius et al., "Mixed Precision Training", ICLR 2018).

#include "strata/core/tensor.h"

namespace strata::optim {

/// PyTorch's GradScaler's defaults.
struct LossScalerOptions {
  double init = 65536;
  double growth = 2;     ///< the scale's factor after growth_interval finite steps in a row
  double backoff = 0.5;  ///< its factor after a step whose gradients were not finite
  int64_t growth_interval = 2000;
  /// Throws ValueError: init must be positive, growth at least 1, backoff in (0, 1], growth_interval at least 1.
  void validate() const;
};

/// The scale, which follows the gradients: Optimizer::step_guarded() moves it. It lives on the parameters' device,
/// where nothing waits for it. \code
///   optim::LossScaler scaler(model.device());
///   scaler.scale(loss).backward();
///   opt.step_guarded({.max_norm = 1.0, .loss = loss, .scaler = &scaler});
/// \endcode
class LossScaler {
 public:
  explicit LossScaler(Device device = Device::cpu(), const LossScalerOptions& options = {});
  /// loss * scale in f32 (f64 for f64), to call backward() on.
  Tensor scale(const Tensor& loss) const;
  /// The scale; waits for the device.
  double value() const;
  /// f64 [2]: the scale, and the finite steps since it last changed. All there is to save.
  const Tensor& state() const { return state_; }
  /// Goes on from a state(). Throws ShapeError or DTypeError.
  void load_state(const Tensor& state);
  const LossScalerOptions& options() const { return options_; }

 private:
  LossScalerOptions options_;
  Tensor state_;
};

}  // namespace strata::optim
