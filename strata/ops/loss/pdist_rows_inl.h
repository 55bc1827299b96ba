// Differences of two rows of f32 or f64, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// The sum of the squares of n differences, or of their sizes.
template <class T>
STRATA_INLINE T row_distance_of(const T* a, const T* b, int64_t n, bool squares) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>;
  Vec sums[4] = {};
  T sum = 0;
  int64_t i = 0;
  const auto run = [&](auto join) {
    for (; i + 4 * W <= n; i += 4 * W)
      for (int k = 0; k < 4; ++k) sums[k] = join(load(a + i + k * W) - load(b + i + k * W), sums[k]);
    for (; i + W <= n; i += W) sums[0] = join(load(a + i) - load(b + i), sums[0]);
  };
  if (squares)
    run([](Vec d, Vec s) { return fma(d, d, s); });
  else
    run([](Vec d, Vec s) { return s + max(d, -d); });
  const Vec all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int k = 0; k < W; ++k) sum += all[k];
  for (; i < n; ++i) {
    const T d = a[i] - b[i];
    sum += squares ? d * d : std::abs(d);
  }
  return sum;
}
// to += by (a - b), or by times the sign of that.
template <class T>
STRATA_INLINE void add_difference_of(const T* a, const T* b, T by, T* to, int64_t n, bool squares) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>;
  const Vec factor = set1(by);
  int64_t i = 0;
  if (squares) {
    for (; i + W <= n; i += W) store(to + i, fma(load(a + i) - load(b + i), factor, load(to + i)));
  } else {
    for (; i + W <= n; i += W) {
      const Vec d = load(a + i) - load(b + i);
      store(to + i, load(to + i) + (d > T(0) ? factor : (d < T(0) ? -factor : Vec{})));
    }
  }
  for (; i < n; ++i) {
    const T d = a[i] - b[i];
    to[i] += squares ? d * by : d > 0 ? by : d < 0 ? -by : T(0);
  }
}

static float row_distance(const float* a, const float* b, int64_t n, bool squares) {
  return row_distance_of(a, b, n, squares);
}
static double row_distance_f64(const double* a, const double* b, int64_t n, bool squares) {
  return row_distance_of(a, b, n, squares);
}
static void add_difference(const float* a, const float* b, float by, float* to, int64_t n, bool squares) {
  add_difference_of(a, b, by, to, n, squares);
}
static void add_difference_f64(const double* a, const double* b, double by, double* to, int64_t n, bool squares) {
  add_difference_of(a, b, by, to, n, squares);
}

}  // namespace strata::STRATA_VEC_NS
