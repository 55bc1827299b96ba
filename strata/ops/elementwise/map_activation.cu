#include "strata/ops/elementwise/map.cuh"

#define STRATA_MAP_ACTIVATION
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
void add_activation_maps(CudaMaps& table) {
  Rows rows(table);
  activation_rows(rows);
}
}  // namespace strata
