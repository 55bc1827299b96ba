#include "strata/ops/factory/ranges_kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/factory/ranges_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void evenly_spaced_cpu(DType t, void* y, int64_t begin, int64_t end, double from, double step, int64_t zero) {
  STRATA_VEC_CALL(evenly_spaced)(t, y, begin, end, from, step, zero);
}

}  // namespace strata
