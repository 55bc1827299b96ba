#include "strata/optim/adamw/adamw.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& AdamWOptions::record() {
  using O = AdamWOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<AdamW, O>({
      .name = "adamw",
      .title = "AdamW",
      .doc = "Adam with decoupled weight decay (Loshchilov and Hutter, 2019).",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, apart from the gradient.",
                                       kNotNegative, "-"),
              option<&O::amsgrad>("amsgrad", "Divides by the largest second moment so far."),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"exp_avg", "Mean of the gradients."},
              {"exp_avg_sq", "Mean of their squares."},
              {"max_exp_avg_sq", "The largest such mean so far.", Kind::like,
               of<O, [](const O& o) { return o.amsgrad; }>},
          },
      .python = "lr, betas=(beta1, beta2), eps, weight_decay, amsgrad, *, foreach, maximize, capturable, "
                "differentiable, fused, decoupled_weight_decay:True",
      .decoupled = of<O, [](const O&) { return true; }>,
      .rule = of<O, [](const O& o) { return o.amsgrad ? Rule::amsgrad : Rule::adam; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.beta1;
                                  k[2] = 1 - o.beta1;
                                  k[3] = o.beta2;
                                  k[4] = 1 - o.beta2;
                                  k[5] = lr;
                                  k[7] = o.eps;
                                  k[8] = 1 - lr * o.weight_decay;
                                  k[9] = 0;
                                }>,
  });
  return r;
}
void AdamWOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::adamw() {
  return AdamWOptions::record();
}

}  // namespace strata::optim
