#include "strata/ops/reduce/kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/reduce/extreme_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void (*extreme_of_ints(DType t, bool largest))(const void*, int64_t, void*) {
  return STRATA_VEC_CALL(run_extreme_of_type)(t, largest);
}
void widen_run(const Half* from, int64_t n, float* to) {
  STRATA_VEC_CALL(widen_halves)(from, n, to);
}

}  // namespace strata
