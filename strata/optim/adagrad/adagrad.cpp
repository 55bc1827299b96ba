#include "strata/optim/adagrad/adagrad.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& AdagradOptions::record() {
  using O = AdagradOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<Adagrad, O>({
      .name = "adagrad",
      .title = "Adagrad",
      .doc = "Adagrad (Duchi et al., 2011): divides by the root of the sum of all squares.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::lr_decay>("lr_decay", "Update t takes lr / (1 + (t - 1) lr_decay).", kNotNegative),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
              option<&O::initial_accumulator_value>("initial_accumulator_value", "What the sum of squares begins with.",
                                                    kNotNegative),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"sum", "Sum of the squares.", Kind::like, nullptr,
               [](const void* o, double) { return static_cast<const O*>(o)->initial_accumulator_value; }},
          },
      .python =
          "lr, lr_decay, weight_decay, initial_accumulator_value, eps, foreach, *, maximize, differentiable, fused",
      .rule = of<O, [](const O&) { return Rule::adagrad; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = lr;
                                  k[2] = o.eps;
                                  k[3] = o.weight_decay;
                                  k[4] = o.lr_decay;
                                }>,
  });
  return r;
}
void AdagradOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::adagrad() {
  return AdagradOptions::record();
}

}  // namespace strata::optim
