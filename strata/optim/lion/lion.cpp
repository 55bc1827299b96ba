#include "strata/optim/lion/lion.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& LionOptions::record() {
  using O = LionOptions;
  static const OptimizerRecord r = finished<Lion, O>({
      .name = "lion",
      .title = "Lion",
      .doc = "Lion (Chen et al., 2023): steps by the sign of a mean of gradients; a learning rate 3 to 10 times less "
             "than that of AdamW.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, apart from the gradient.",
                                       kNotNegative, "-"),
          },
      .states =
          {
              {"exp_avg", "Mean of the gradients."},
          },
      .python = "lr, betas=(beta1, beta2), weight_decay, *",
      .decoupled = of<O, [](const O&) { return true; }>,
      .rule = of<O, [](const O&) { return Rule::lion; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.beta1;
                                  k[2] = 1 - o.beta1;
                                  k[3] = o.beta2;
                                  k[4] = 1 - o.beta2;
                                  k[5] = lr;
                                  k[6] = 1 - lr * o.weight_decay;
                                }>,
  });
  return r;
}
void LionOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::lion() {
  return LionOptions::record();
}

}  // namespace strata::optim
