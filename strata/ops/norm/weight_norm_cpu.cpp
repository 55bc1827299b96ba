#include "strata/ops/norm/weight_norm_kernel.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/norm/weight_norm_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void weight_norm_cpu(DType t, const void* v, const void* g, int64_t rows, int64_t n, void* y) {
  STRATA_VEC_CALL(weight_norm)(t, v, g, rows, n, y);
}

void weight_norm_backward_cpu(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n, void* gv,
                              void* gg) {
  STRATA_VEC_CALL(weight_norm_backward)(t, gy, v, g, rows, n, gv, gg);
}

}  // namespace strata
