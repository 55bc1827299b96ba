#include "strata/optim/adadelta/adadelta.h"

#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& AdadeltaOptions::record() {
  using O = AdadeltaOptions;
  static const OptimizerRecord r = finished<Adadelta, O>({
      .name = "adadelta",
      .title = "Adadelta",
      .doc = "Adadelta (Zeiler, 2012): steps whose size is that of the last ones over that of the gradients.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::rho>("rho", "Decay of the means of squares.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kNotNegative),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, added to the gradient.", kNotNegative,
                                       "-"),
          },
      .states =
          {
              {"square_avg", "Mean of the squares."},
              {"acc_delta", "Mean of the squared steps."},
          },
      .python = "lr, rho, eps, weight_decay, foreach, *, capturable, maximize, differentiable",
      .rule = of<O, [](const O&) { return Rule::adadelta; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = lr;
                                  k[2] = o.rho;
                                  k[3] = 1 - o.rho;
                                  k[4] = o.eps;
                                  k[5] = o.weight_decay;
                                }>,
  });
  return r;
}
void AdadeltaOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::adadelta() {
  return AdadeltaOptions::record();
}

}  // namespace strata::optim
