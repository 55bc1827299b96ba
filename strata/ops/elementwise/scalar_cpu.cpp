// The dense kernels of functions_inl.h's rows: plain loops, for the types that the vectorised kernels lack.

#include <cstring>

#include "strata/ops/elementwise/scalar_rows_inl.h"

#define STRATA_MAP_UNARY
#define STRATA_MAP_ACTIVATION
#define STRATA_MAP_ARITHMETIC
#define STRATA_MAP_COMPARISON
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {

// where(): the first operand is the condition. Chosen by bits of the elements, which are of T's size: a branch would be
// guessed wrongly for every other element of a random condition.
template <class Bits>
void dense_where(void* out, const void* const* in, int64_t n, const MapParams&) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const char* a = static_cast<const char*>(in[1]);
  const char* b = static_cast<const char*>(in[2]);
  char* y = static_cast<char*>(out);
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits));
  for (int64_t i = 0; i < n; ++i) {
    Bits yes, no;
    std::memcpy(&yes, a + i * kSize, sizeof yes);
    std::memcpy(&no, b + i * kSize, sizeof no);
    const Bits mask = static_cast<Bits>(-static_cast<int64_t>(c[i] != 0));
    const Bits chosen = static_cast<Bits>((yes & mask) | (no & static_cast<Bits>(~mask)));
    std::memcpy(y + i * kSize, &chosen, sizeof chosen);
  }
}

template <class T>
DenseMap where_of() {
  if constexpr (sizeof(T) == 1)
    return dense_where<uint8_t>;
  else if constexpr (sizeof(T) == 2)
    return dense_where<uint16_t>;
  else if constexpr (sizeof(T) == 4)
    return dense_where<uint32_t>;
  else
    return dense_where<uint64_t>;
}
template <class... T>
void add_where(ScalarMaps& table) {
  ((table[static_cast<size_t>(Map::where)][static_cast<size_t>(dtype_of<T>)] = where_of<T>()), ...);
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
