// The dense kernels of functions_inl.h's rows: plain loops, for the types that the vectorised kernels lack.

#include "strata/ops/elementwise/scalar_rows_inl.h"

#define STRATA_MAP_UNARY
#define STRATA_MAP_ACTIVATION
#define STRATA_MAP_ARITHMETIC
#define STRATA_MAP_COMPARISON
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {

// where(): the first operand is the condition.
template <class T>
void dense_where(void* out, const void* const* in, int64_t n, const MapParams&) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = c[i] ? a[i] : b[i];
}

template <class... T>
void add_where(ScalarMaps& table) {
  ((table[static_cast<size_t>(Map::where)][static_cast<size_t>(dtype_of<T>)] = dense_where<T>), ...);
}

ScalarMaps make_table() {
  ScalarMaps table{};
  Rows r(table);
  unary_rows(r);
  activation_rows(r);
  arithmetic_rows(r);
  comparison_rows(r);
  add_where<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(table);
  add_special_maps(table);
  return table;
}

}  // namespace

DenseMap scalar_map(Map f, DType type) {
  static const ScalarMaps table = make_table();
  return table[static_cast<size_t>(f)][static_cast<size_t>(type)];
}

}  // namespace strata
