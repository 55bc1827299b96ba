// The choice of tests and benches; see conv_choice_cuda.h.

#include "strata/ops/conv/conv_choice_cuda.h"

namespace strata::conv_cuda {

ConvChoice& conv_choice() {
  static ConvChoice choice;
  return choice;
}

}  // namespace strata::conv_cuda
