// The vectorised kernels of this processor; scalar_cpu.cpp has those that are not worth vector code.

#include "strata/ops/elementwise/kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/elementwise/simd_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

DenseMap simd_map(Map f, DType type) {
  if (!is_floating(type)) return simd_whole_map(f, type);
  DenseMap map = type == DType::f64 ? simd_double_map(f) : STRATA_VEC_CALL(vec_map_of)(f, type);
  if (is_reduced_floating(type)) return map;
  if (!map) map = simd_special_map(f, type);
  return map ? map : simd_whole_map(f, type);
}
RowsMap simd_rows_map(Map f, DType type) {
  if (!is_floating(type) || type == DType::f64) return nullptr;
  return STRATA_VEC_CALL(vec_rows_map_of)(f, type);
}
const Converters& converters() {
  return STRATA_VEC_CALL(vec_converters)();
}

}  // namespace strata
