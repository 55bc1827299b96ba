// The kernels of whole numbers for this processor; scalar_cpu.cpp has those that are not worth vector code.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "strata/core/error.h"
#include "strata/ops/elementwise/kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/elementwise/whole_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

DenseMap simd_whole_map(Map f, DType type) {
  return STRATA_VEC_CALL(whole_map_of)(f, type);
}

}  // namespace strata
