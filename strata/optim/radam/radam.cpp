#include "strata/optim/radam/radam.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& RAdamOptions::record() {
  using O = RAdamOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<RAdam, O>({
      .name = "radam",
      .title = "RAdam",
      .doc = "Rectified Adam (Liu et al., 2020): the step is scaled by the variance that the second moment has after "
             "few updates.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
              option<&O::decoupled_weight_decay>("decoupled_weight_decay",
                                                 "Decay apart from the gradient; false adds it to the gradient."),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"exp_avg", "Mean of the gradients."},
              {"exp_avg_sq", "Mean of their squares."},
          },
      .python = "lr, betas=(beta1, beta2), eps, weight_decay, decoupled_weight_decay, *, foreach, maximize, "
                "capturable, differentiable",
      .decoupled = of<O, [](const O& o) { return o.decoupled_weight_decay; }>,
      .rule = of<O, [](const O&) { return Rule::radam; }>,
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
                                }>,
  });
  return r;
}
void RAdamOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::radam() {
  return RAdamOptions::record();
}

}  // namespace strata::optim
