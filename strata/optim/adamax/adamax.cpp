#include "strata/optim/adamax/adamax.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& AdamaxOptions::record() {
  using O = AdamaxOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<Adamax, O>({
      .name = "adamax",
      .title = "Adamax",
      .doc = "Adamax (Kingma and Ba, 2015, section 7.1): Adam with the infinity norm.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"exp_avg", "Mean of the gradients."},
              {"exp_inf", "Largest gradient, which decays."},
          },
      .python = "lr, betas=(beta1, beta2), eps, weight_decay, foreach, *, maximize, differentiable, capturable",
      .rule = of<O, [](const O&) { return Rule::adamax; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.beta1;
                                  k[2] = 1 - o.beta1;
                                  k[3] = o.beta2;
                                  k[4] = 1 - o.beta2;
                                  k[5] = lr;
                                  k[7] = o.eps;
                                  k[8] = 1;
                                  k[9] = o.weight_decay;
                                }>,
  });
  return r;
}
void AdamaxOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::adamax() {
  return AdamaxOptions::record();
}

}  // namespace strata::optim
