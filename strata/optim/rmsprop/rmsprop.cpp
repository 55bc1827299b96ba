#include "strata/optim/rmsprop/rmsprop.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& RMSpropOptions::record() {
  using O = RMSpropOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<RMSprop, O>({
      .name = "rmsprop",
      .title = "RMSprop",
      .doc = "RMSprop (Tieleman and Hinton, 2012; centered: Graves, 2013): divides by the root of the mean of squares.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::alpha>("alpha", "Decay of the mean of squares.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
              option<&O::momentum>("momentum", "Momentum.", kNotNegative),
              option<&O::centered>("centered", "Divides by the gradients' deviation from their mean."),
          },
      .states =
          {
              {"square_avg", "Mean of the squares."},
              {"momentum_buffer", "Steps, added up with momentum.", Kind::like,
               of<O, [](const O& o) { return (o.momentum > 0) || o.centered; }>},
              {"grad_avg", "Mean of the gradients.", Kind::like, of<O, [](const O& o) { return o.centered; }>},
          },
      .python = "lr, alpha, eps, weight_decay, momentum, centered, capturable, foreach, maximize, differentiable, *",
      .rule = of<O,
                 [](const O& o) {
                   return o.centered         ? Rule::rmsprop_centered
                          : (o.momentum > 0) ? Rule::rmsprop_momentum
                                             : Rule::rmsprop;
                 }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = lr;
                                  k[2] = o.alpha;
                                  k[3] = 1 - o.alpha;
                                  k[4] = o.eps;
                                  k[5] = o.weight_decay;
                                  k[6] = o.momentum;
                                }>,
  });
  return r;
}
void RMSpropOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::rmsprop() {
  return RMSpropOptions::record();
}

}  // namespace strata::optim
