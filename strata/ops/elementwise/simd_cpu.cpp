#include "strata/core/dtype.h"
#include "strata/ops/elementwise/kernels.h"

namespace strata {
namespace {
template <class T>
void widen(float* y, const void* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<const T*>(x)[i];
}
template <class T>
void narrow(void* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = T(x[i]);
}
}  // namespace

DenseMap simd_map(Map) { return nullptr; }
const Converters& converters() {
  static constexpr Converters c{widen<BFloat16>, narrow<BFloat16>, widen<Half>, narrow<Half>};
  return c;
}
}  // namespace strata
