#include "strata/ops/elementwise/map.cuh"

#define STRATA_MAP_UNARY
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
void add_unary_maps(CudaMaps& table) {
  Rows rows(table);
  unary_rows(rows);
}
}  // namespace strata
