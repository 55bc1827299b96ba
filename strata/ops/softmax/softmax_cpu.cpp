#include "strata/ops/softmax/softmax_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/softmax/softmax_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void softmax_forward_cpu(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner) {
  if (outer * n * inner == 0) return;
  STRATA_VEC_CALL(softmax_forward)(t, log, x, y, outer, n, inner);
}

void softmax_backward_cpu(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                          int64_t inner) {
  if (outer * n * inner == 0) return;
  STRATA_VEC_CALL(softmax_backward)(t, log, gy, y, gx, outer, n, inner);
}

}  // namespace strata
