#include "strata/ops/attention/rotary_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/attention/rotary_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void rotary_cpu(const RotaryCall& c) {
  STRATA_VEC_CALL(rotary)(c);
}

}  // namespace strata
