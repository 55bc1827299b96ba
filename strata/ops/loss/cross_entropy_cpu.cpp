#include "strata/core/error.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/loss/cross_entropy_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void cross_entropy_cpu(const CrossEntropyCall& c) {
  STRATA_VEC_CALL(cross_entropy)(c);
}

void cross_entropy_backward_cpu(const CrossEntropyCall& c) {
  STRATA_VEC_CALL(cross_entropy_backward)(c);
}

}  // namespace strata
