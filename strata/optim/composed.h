#pragma once
// Rules written with tensor operations, parameter by parameter: their step's numbers are the host's, so that a CUDA
// graph cannot hold them (capturable() is false). Formulas and defaults are PyTorch's.

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
};

/// Rprop (Riedmiller & Braun, 1993), for gradients of all the data: an element moves against its gradient's sign by a
/// step of its own, s = clamp(etaplus s) where the sign is the last one's; where it turned, s = clamp(etaminus s) and
/// the gradient counts as 0, now and as the next one's last. lr is read at the first update alone. State: step, prev,
/// step_size.
class Rprop final : public OptimizerOf<RpropOptions> {
 public:
  explicit Rprop(const std::vector<Group>& groups) : OptimizerOf("rprop", groups) {}
  explicit Rprop(const NamedTensors& params, const RpropOptions& options = {})
      : Rprop(std::vector<Group>{{params, options}}) {}
  explicit Rprop(const TensorList& params, const RpropOptions& options = {}) : Rprop(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
};

/// Of ASGD.
struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;      ///< decay of the parameters and of the rate
  double alpha = 0.75;      ///< power of the rate's decay
  double t0 = 1e6;          ///< the update after which the average begins
  double weight_decay = 0;  ///< added to the gradient (L2)
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Averaged gradient descent (Polyak & Juditsky, 1992): eta = lr / (1 + lambd lr (t - 1))^alpha; p = (1 - lambd eta) p
/// - eta g; ax += (p - ax) / max(1, t - 1 - t0). The average is state only: a network is tested with it by copying it
/// over the parameters. State: step, ax.
class ASGD final : public OptimizerOf<ASGDOptions> {
 public:
  explicit ASGD(const std::vector<Group>& groups) : OptimizerOf("asgd", groups) {}
  explicit ASGD(const NamedTensors& params, const ASGDOptions& options = {})
      : ASGD(std::vector<Group>{{params, options}}) {}
  explicit ASGD(const TensorList& params, const ASGDOptions& options = {}) : ASGD(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
};

}  // namespace strata::optim
