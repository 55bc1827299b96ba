#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of SparseAdam; the defaults are PyTorch's.
struct SparseAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  /// What is known of the optimizer.
  static const OptimizerRecord& record();
};

/// Adam that leaves rows (entries of the first dimension) without a gradient as they are, moments too: for tables of
/// which a step uses a few rows. Gradients are dense; a row of zeros is one without. State: step, exp_avg, exp_avg_sq.
class SparseAdam final : public OptimizerOf<SparseAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 protected:
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool one_run() const override { return false; }  // which rows are used is memory of the update's own
};

}  // namespace strata::optim
