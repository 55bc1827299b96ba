#include "strata/core/dispatch.h"
#include "strata/ops/reduce/fold_kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/reduce/index_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

IndexLoops index_loops(DType t, bool largest) {
  return STRATA_VEC_CALL(index_loops_of)(t, largest);
}

}  // namespace strata
