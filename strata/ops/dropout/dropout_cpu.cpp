#include "strata/ops/dropout/dropout_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/dropout/dropout_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void dropout_cpu(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key) {
  STRATA_VEC_CALL(dropout)(t, x, y, n, p, scale, key);
}

}  // namespace strata
