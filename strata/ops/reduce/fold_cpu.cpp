#include "strata/ops/reduce/fold_kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/reduce/fold_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

FoldLoops fold_loops(Fold f, DType t) {
  return STRATA_VEC_CALL(loops_of_type)(f, t);
}
DotLoops dot_loops(DType t) {
  return STRATA_VEC_CALL(dots_of_type)(t);
}

}  // namespace strata
