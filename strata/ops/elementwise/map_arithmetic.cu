#include "strata/ops/elementwise/map.cuh"

#define STRATA_MAP_ARITHMETIC
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
void add_arithmetic_maps(CudaMaps& table) {
  Rows rows(table);
  arithmetic_rows(rows);
}
}  // namespace strata
