#pragma once
// Rules that divide by running sizes of the gradient, beside Adam: their defaults are PyTorch's.

#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of RMSprop.
struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< decay of the average of squares
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient (L2), as in the others of this file
  double momentum = 0;
  bool centered = false;  ///< divides by the gradients' deviation from their average
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// RMSprop (Tieleman & Hinton, 2012; centered: Graves, 2013): v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) +
/// eps), or through a buffer b = momentum b + g / (sqrt(v) + eps). State: square_avg; momentum_buffer with momentum or
/// centered; grad_avg with centered.
class RMSprop final : public OptimizerOf<RMSpropOptions> {
 public:
  explicit RMSprop(const std::vector<Group>& groups) : OptimizerOf("rmsprop", groups) {}
  explicit RMSprop(const NamedTensors& params, const RMSpropOptions& options = {})
      : RMSprop(std::vector<Group>{{params, options}}) {}
  explicit RMSprop(const TensorList& params, const RMSpropOptions& options = {})
      : RMSprop(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

/// Of Adagrad.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  ///< the rate of update t is lr / (1 + (t - 1) lr_decay)
  double eps = 1e-10;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Adagrad (Duchi et al., 2011): s += g^2; p -= rate g / (sqrt(s) + eps). State: step, sum.
class Adagrad final : public OptimizerOf<AdagradOptions> {
 public:
  explicit Adagrad(const std::vector<Group>& groups) : OptimizerOf("adagrad", groups) {}
  explicit Adagrad(const NamedTensors& params, const AdagradOptions& options = {})
      : Adagrad(std::vector<Group>{{params, options}}) {}
  explicit Adagrad(const TensorList& params, const AdagradOptions& options = {})
      : Adagrad(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

/// Of Adadelta.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  ///< decay of both averages
  double eps = 1e-6;
  double weight_decay = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Adadelta (Zeiler, 2012): v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2;
/// p -= lr d. State: square_avg (v), acc_delta (u).
class Adadelta final : public OptimizerOf<AdadeltaOptions> {
 public:
  explicit Adadelta(const std::vector<Group>& groups) : OptimizerOf("adadelta", groups) {}
  explicit Adadelta(const NamedTensors& params, const AdadeltaOptions& options = {})
      : Adadelta(std::vector<Group>{{params, options}}) {}
  explicit Adadelta(const TensorList& params, const AdadeltaOptions& options = {})
      : Adadelta(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

/// Of Adamax.
struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Adamax (Kingma & Ba, 2015, section 7.1): m as Adam's; u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1^t) m / u.
/// State: step, exp_avg, exp_inf.
class Adamax final : public OptimizerOf<AdamaxOptions> {
 public:
  explicit Adamax(const std::vector<Group>& groups) : OptimizerOf("adamax", groups) {}
  explicit Adamax(const NamedTensors& params, const AdamaxOptions& options = {})
      : Adamax(std::vector<Group>{{params, options}}) {}
  explicit Adamax(const TensorList& params, const AdamaxOptions& options = {})
      : Adamax(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

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
};

/// Adam with Nesterov's momentum (Dozat, 2016): mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2);
/// p -= lr ((1 - mu_t) / (1 - mu_1 ... mu_t) g + mu_t+1 / (1 - mu_1 ... mu_t+1) m) / (sqrt(v') + eps).
/// State: step, exp_avg, exp_avg_sq.
class NAdam final : public OptimizerOf<NAdamOptions> {
 public:
  explicit NAdam(const std::vector<Group>& groups) : OptimizerOf("nadam", groups) {}
  explicit NAdam(const NamedTensors& params, const NAdamOptions& options = {})
      : NAdam(std::vector<Group>{{params, options}}) {}
  explicit NAdam(const TensorList& params, const NAdamOptions& options = {}) : NAdam(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

/// Of RAdam.
struct RAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< p -= lr weight_decay p in place of L2
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Rectified Adam (Liu et al., 2020): the step is scaled by the variance that the second moment has after few updates,
/// and does without it in the first ones. State: step, exp_avg, exp_avg_sq.
class RAdam final : public OptimizerOf<RAdamOptions> {
 public:
  explicit RAdam(const std::vector<Group>& groups) : OptimizerOf("radam", groups) {}
  explicit RAdam(const NamedTensors& params, const RAdamOptions& options = {})
      : RAdam(std::vector<Group>{{params, options}}) {}
  explicit RAdam(const TensorList& params, const RAdamOptions& options = {}) : RAdam(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

}  // namespace strata::optim
