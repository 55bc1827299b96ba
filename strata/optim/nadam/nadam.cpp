#include "strata/optim/nadam/nadam.h"

#include <cmath>
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& NAdamOptions::record() {
  using O = NAdamOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<NAdam, O>({
      .name = "nadam",
      .title = "NAdam",
      .doc = "Adam with Nesterov's momentum (Dozat, 2016).",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
              option<&O::momentum_decay>("momentum_decay", "How the momentum grows towards beta1.", kNotNegative),
              option<&O::decoupled_weight_decay>("decoupled_weight_decay",
                                                 "Decay apart from the gradient; false adds it to the gradient."),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"exp_avg", "Mean of the gradients."},
              {"exp_avg_sq", "Mean of their squares."},
          },
      .python = "lr, betas=(beta1, beta2), eps, weight_decay, momentum_decay, decoupled_weight_decay, *, foreach, "
                "maximize, capturable, differentiable",
      .decoupled = of<O, [](const O& o) { return o.decoupled_weight_decay; }>,
      .derived = {{"mu_product",
                   [](const void* options, double, int64_t updates) {
                     const O& o = *static_cast<const O*>(options);
                     double product = 1;
                     for (int64_t t = 1; t <= updates; ++t)
                       product *= o.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * o.momentum_decay));
                     return product;
                   }}},
      .rule = of<O, [](const O&) { return Rule::nadam; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.beta1;
                                  k[2] = 1 - o.beta1;
                                  k[3] = o.beta2;
                                  k[4] = 1 - o.beta2;
                                  k[5] = lr;
                                  k[7] = o.eps;
                                  k[8] = o.decoupled_weight_decay ? 1 - lr * o.weight_decay : 1;
                                  k[9] = o.decoupled_weight_decay ? 0 : o.weight_decay;
                                  k[10] = o.momentum_decay;
                                }>,
      .same_bits = false,
  });
  return r;
}
void NAdamOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::nadam() {
  return NAdamOptions::record();
}

}  // namespace strata::optim
