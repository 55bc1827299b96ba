#include "strata/core/dispatch.h"
#include "strata/ops/reduce/fold_kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/reduce/index_columns_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

IndexColumns index_columns(DType t, bool largest) {
  return STRATA_VEC_CALL(index_columns_of)(t, largest);
}

}  // namespace strata
