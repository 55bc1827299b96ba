// The dense kernels of the special functions.

#include "strata/ops/elementwise/scalar_rows_inl.h"
#include "strata/ops/special/special_rows_inl.h"

namespace strata {
void add_special_maps(ScalarMaps& table) {
  Rows rows(table);
  special_rows(rows);
}
}  // namespace strata
