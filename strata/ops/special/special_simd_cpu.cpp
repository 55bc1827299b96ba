// The vectorised kernels of the special functions for this processor; special_cpu.cpp has the others.

#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/special/polynomials_inl.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/special/special_simd_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

DenseMap simd_special_map(Map f, DType type) {
  return STRATA_VEC_CALL(special_map_of)(f, type == DType::f64);
}

}  // namespace strata
