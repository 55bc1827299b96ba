// Differences of two f32 rows, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"

namespace strata::STRATA_VEC_NS {

// The sum of the squares of n differences, or of their sizes.
static float row_distance(const float* a, const float* b, int64_t n, bool squares) {
  VF sums[4] = {};
  float sum = 0;
  int64_t i = 0;
  const auto run = [&](auto join) {
    for (; i + 4 * kW <= n; i += 4 * kW)
      for (int k = 0; k < 4; ++k) sums[k] = join(load(a + i + k * kW) - load(b + i + k * kW), sums[k]);
    for (; i + kW <= n; i += kW) sums[0] = join(load(a + i) - load(b + i), sums[0]);
  };
  if (squares)
    run([](VF d, VF s) { return fma(d, d, s); });
  else
    run([](VF d, VF s) { return s + absolute(d); });
  const VF all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int k = 0; k < kW; ++k) sum += all[k];
  for (; i < n; ++i) {
    const float d = a[i] - b[i];
    sum += squares ? d * d : std::abs(d);
  }
  return sum;
}
// to += by (a - b), or by times the sign of that.
static void add_difference(const float* a, const float* b, float by, float* to, int64_t n, bool squares) {
  const VF factor = set1(by);
  int64_t i = 0;
  if (squares) {
    for (; i + kW <= n; i += kW) store(to + i, fma(load(a + i) - load(b + i), factor, load(to + i)));
  } else {
    for (; i + kW <= n; i += kW) {
      const VF d = load(a + i) - load(b + i);
      store(to + i, load(to + i) + (d > 0.f ? factor : (d < 0.f ? -factor : VF{})));
    }
  }
  for (; i < n; ++i) {
    const float d = a[i] - b[i];
    to[i] += squares ? d * by : d > 0 ? by : d < 0 ? -by : 0.f;
  }
}

}  // namespace strata::STRATA_VEC_NS
