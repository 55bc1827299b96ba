#include "strata/ops/elementwise/map.cuh"
#include "strata/ops/special/special_rows_inl.h"

namespace strata {
namespace {

// Of whole orders, which need no copy in the dtype of x.
void polynomial_of_whole(Tensor& y, const Tensor* const* in, const MapParams& params) {
  dispatch_floats(y.dtype(), "orthogonal_polynomial",
                  [&]<class T>() { launch<CardPolynomial, T, T, int64_t>(y, in, params); });
}

}  // namespace

void add_special_maps(CudaMaps& table) {
  Rows rows(table);
  special_rows(rows);
  table[static_cast<size_t>(Map::polynomial)][static_cast<size_t>(DType::i64)] = polynomial_of_whole;
}
}  // namespace strata
