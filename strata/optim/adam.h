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
};
/// Of AdamW; the defaults are PyTorch's.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
  LowPrecision low = {};
  operator AdamOptions() const { return {lr, beta1, beta2, eps, weight_decay, amsgrad, low}; }
  void validate() const { AdamOptions(*this).validate(); }  ///< throws ValueError
};

/// Adam (Kingma & Ba, 2015): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// p -= lr m' / (sqrt(v') + eps) with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t).
/// State: step, exp_avg, exp_avg_sq, and with amsgrad max_exp_avg_sq.
class Adam final : public OptimizerOf<AdamOptions> {
 public:
  explicit Adam(const std::vector<Group>& groups) : OptimizerOf("adam", groups) {}
  explicit Adam(const NamedTensors& params, const AdamOptions& options = {})
      : Adam(std::vector<Group>{{params, options}}) {}
  explicit Adam(const TensorList& params, const AdamOptions& options = {}) : Adam(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

/// Adam with decoupled weight decay (Loshchilov & Hutter, 2019). Same state as Adam.
///
///     auto [matrices, vectors] = split_by_rank(model.named_parameters());
///     AdamW opt({{matrices, {3e-4, 0.9, 0.95, 1e-8, 0.1}}, {vectors, {3e-4, 0.9, 0.95, 1e-8, 0.0}}});
class AdamW final : public OptimizerOf<AdamWOptions> {
 public:
  explicit AdamW(const std::vector<Group>& groups) : OptimizerOf("adamw", groups) {}
  explicit AdamW(const NamedTensors& params, const AdamWOptions& options = {})
      : AdamW(std::vector<Group>{{params, options}}) {}
  explicit AdamW(const TensorList& params, const AdamWOptions& options = {}) : AdamW(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

}  // namespace strata::optim
