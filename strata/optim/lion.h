#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Lion.
struct LionOptions {
  double lr = 1e-4;  ///< 3 to 10 times less than AdamW's
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled; 3 to 10 times more than AdamW's
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
};

/// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): c = beta1 m + (1 - beta1) g;
/// p -= lr (sign(c) + weight_decay p); m = beta2 m + (1 - beta2) g. State: exp_avg.
class Lion final : public OptimizerOf<LionOptions> {
 public:
  explicit Lion(const std::vector<Group>& groups) : OptimizerOf("lion", groups) {}
  explicit Lion(const NamedTensors& params, const LionOptions& options = {})
      : Lion(std::vector<Group>{{params, options}}) {}
  explicit Lion(const TensorList& params, const LionOptions& options = {}) : Lion(number_params(params), options) {}

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }
};

}  // namespace strata::optim
