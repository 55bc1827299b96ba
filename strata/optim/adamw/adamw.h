#pragma once
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of AdamW; the defaults are PyTorch's.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Adam with decoupled weight decay (Loshchilov & Hutter, 2019). Same state as Adam.
///
///     auto [matrices, vectors] = split_by_rank(model.named_parameters());
///     AdamW opt({{matrices, {3e-4, 0.9, 0.95, 1e-8, 0.1}}, {vectors, {3e-4, 0.9, 0.95, 1e-8, 0.0}}});
class AdamW final : public OptimizerOf<AdamWOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace strata::optim
