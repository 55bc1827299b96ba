#include "strata/ops/elementwise/map.cuh"
#include "strata/ops/special/special_rows_inl.h"

namespace strata {
void add_special_maps(CudaMaps& table) {
  Rows rows(table);
  special_rows(rows);
}
}  // namespace strata
