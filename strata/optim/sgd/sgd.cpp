#include "strata/optim/sgd/sgd.h"

#include "strata/core/error.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& SGDOptions::record() {
  using O = SGDOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<SGD, O>({
      .name = "sgd",
      .title = "SGD",
      .doc = "Gradient descent, with momentum (Sutskever et al., 2013).",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::momentum>("momentum", "Momentum.", kNotNegative),
              option<&O::dampening>("dampening", "Part of a gradient that momentum does not take.", {}, "-"),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
              option<&O::nesterov>("nesterov", "Nesterov's form of the momentum."),
          },
      .states =
          {
              {"momentum_buffer", "Gradients, added up with momentum.", Kind::like,
               of<O, [](const O& o) { return o.momentum != 0; }>},
          },
      .python = "lr, momentum, dampening, weight_decay, nesterov, *, maximize, foreach, differentiable, fused",
      .together =
          [](const void* options) {
            const O& o = *static_cast<const O*>(options);
            check(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD",
                  "nesterov needs momentum > 0 and dampening 0, got momentum ", o.momentum, " and dampening ",
                  o.dampening);
          },
      .rule = of<O, [](const O& o) { return o.momentum == 0 ? Rule::sgd : Rule::sgd_momentum; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool first) {
                                  k[1] = lr;
                                  k[2] = o.weight_decay;
                                  k[3] = o.momentum;
                                  k[4] = first ? 1 : 1 - o.dampening;
                                  k[5] = o.nesterov;
                                }>,
  });
  return r;
}
void SGDOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::sgd() {
  return SGDOptions::record();
}

}  // namespace strata::optim
