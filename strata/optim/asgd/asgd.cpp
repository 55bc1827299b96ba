#include "strata/optim/asgd/asgd.h"

#include <algorithm>
#include <cmath>
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& ASGDOptions::record() {
  using O = ASGDOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<ASGD, O>({
      .name = "asgd",
      .title = "ASGD",
      .doc = "Averaged gradient descent (Polyak and Juditsky, 1992): the mean of the parameters is kept as state.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::lambd>("lambd", "Decay of the weights and of the learning rate.", kNotNegative),
              option<&O::alpha>("alpha", "After update t the rate is lr / (1 + lambd lr t)^alpha.", kNotNegative,
                                "asgd_alpha"),
              option<&O::t0>("t0", "Update after which the mean of the weights begins, which the checkpoint keeps.",
                             kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {.name = "eta",
               .doc = "Rate of the next update, which the update before it makes of lr as it is then.",
               .kind = Kind::rate,
               .after =
                   [](const void* options, double lr, int64_t updates) {
                     const O& o = *static_cast<const O*>(options);
                     return lr / std::pow(1 + o.lambd * lr * static_cast<double>(updates), o.alpha);
                   }},
              {"ax", "Mean of the parameter."},
          },
      .python = "lr, lambd, alpha, t0, weight_decay, foreach, maximize, differentiable, capturable, *",
      .derived = {{"mu",
                   [](const void* options, double, int64_t updates) {
                     return 1 / std::max(1.0, static_cast<double>(updates) - static_cast<const O*>(options)->t0);
                   }}},
      .rule = of<O, [](const O&) { return Rule::asgd; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[2] = o.weight_decay;
                                  k[3] = o.lambd;
                                  k[4] = o.alpha;
                                  k[5] = o.t0;
                                  k[kNextRate] = lr;
                                }>,
      .same_bits = false,
  });
  return r;
}
void ASGDOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::asgd() {
  return ASGDOptions::record();
}

}  // namespace strata::optim
