#include "strata/optim/rprop/rprop.h"

#include "strata/core/error.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& RpropOptions::record() {
  using O = RpropOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<Rprop, O>({
      .name = "rprop",
      .title = "Rprop",
      .doc = "Rprop (Riedmiller and Braun, 1993), for gradients of all the data: each element has a step of its own, "
             "which grows while its gradient keeps its sign.",
      .options =
          {
              option<&O::lr>("lr", "Every element's first step.", kNotNegative, "-"),
              option<&O::etaminus>("eta_minus", "Factor of an element's step whose gradient has turned.",
                                   {.min = 0, .max = 1, .above = true, .below = true}, "etaminus"),
              option<&O::etaplus>("eta_plus", "Factor of an element's step whose gradient has not turned.",
                                  {.min = 1, .above = true}, "etaplus"),
              option<&O::step_size_min>("step_size_min",
                                        "Least step of an element; the first one is lr, which counts no more then.",
                                        kNotNegative),
              option<&O::step_size_max>("step_size_max", "Largest step of an element.", kNotNegative),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"prev", "The last gradient, 0 where it had turned."},
              {"step_size", "Each element's step.", Kind::like, nullptr, [](const void*, double lr) { return lr; }},
          },
      .python = "lr, etas=(eta_minus, eta_plus), step_sizes=(step_size_min, step_size_max), *, capturable, foreach, "
                "maximize, differentiable",
      .together =
          [](const void* options) {
            const O& o = *static_cast<const O*>(options);
            check(o.step_size_min <= o.step_size_max, "Rprop",
                  "step_size_min must lie between 0 and step_size_max, got ", o.step_size_min, " and ",
                  o.step_size_max);
          },
      .rule = of<O, [](const O&) { return Rule::rprop; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.etaplus - 1;
                                  k[2] = o.etaminus - 1;
                                  k[3] = o.step_size_min;
                                  k[4] = o.step_size_max;
                                  k[5] = 1;
                                }>,
  });
  return r;
}
void RpropOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::rprop() {
  return RpropOptions::record();
}

}  // namespace strata::optim
