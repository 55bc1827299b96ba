#pragma once
#include <span>

#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Adafactor.
struct AdafactorOptions {
  double lr = 1e-2;           ///< the relative step is min(lr, 1 / sqrt(t)) times the parameter's scale
  double beta2_decay = 0.8;   ///< beta2 of update t is 1 - t^-beta2_decay
  double eps1 = 1e-30;        ///< added to the squared gradients
  double eps2 = 1e-3;         ///< least scale of a parameter
  double clip_threshold = 1;  ///< largest root mean square of an update
  double weight_decay = 0;    ///< decoupled
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adafactor (Shazeer & Stern, 2018, algorithms 4 and 5 with the relative step of section 8). For tensors of two or
/// more dimensions the second moments are kept as means over rows and columns of the last two, so that the state is
/// nearly nothing: V = row col^T / mean(row); U = g / sqrt(V); p -= scale U / max(1, rms(U) / clip_threshold), where
/// scale = max(eps2, rms(p)) min(lr, 1 / sqrt(t)). State: step and row_var, col_var, or variance for vectors.
class Adafactor final : public OptimizerOf<AdafactorOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }

 private:
  void update_on_device(std::span<Param* const> batch, double grad_scale);
};

}  // namespace strata::optim
