// What of a row's scores is above a bound, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// The sum of e - bound over the n elements above it.
template <class T>
STRATA_INLINE T sum_above_of(const T* e, int64_t n, T bound) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>;
  const Vec least = set1(bound);
  Vec sums[4] = {};
  const auto above = [least](Vec v) { return v > least ? v - least : Vec{}; };
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int k = 0; k < 4; ++k) sums[k] += above(load(e + i + k * W));
  for (; i < n; i += W) {
    const int64_t m = std::min(W, n - i);
    sums[0] += above(load_upto(e + i, m, -std::numeric_limits<T>::infinity()));
  }
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
// Counts the elements above the bound, each in its place of `counts` too.
template <class T, class Count>
STRATA_INLINE int64_t count_above_of(const T* e, int64_t n, T bound, Count* counts) {
  typedef Count VCounts __attribute__((vector_size(kVecBytes)));
  constexpr int64_t W = kLanes<T>;
  VCounts all = {};
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    const VCounts yes = load(e + i) > bound;  // -1 where so
    VCounts old;
    __builtin_memcpy(&old, counts + i, sizeof old);
    old -= yes;
    __builtin_memcpy(counts + i, &old, sizeof old);
    all -= yes;
  }
  int64_t sum = 0;
  for (int k = 0; k < W; ++k) sum += all[k];
  for (; i < n; ++i) {
    const Count yes = e[i] > bound;
    counts[i] += yes;
    sum += yes;
  }
  return sum;
}

static float sum_above_f32(const float* e, int64_t n, float bound) {
  return sum_above_of(e, n, bound);
}
static double sum_above_f64(const double* e, int64_t n, double bound) {
  return sum_above_of(e, n, bound);
}
static int64_t count_above_f32(const float* e, int64_t n, float bound, int32_t* counts) {
  return count_above_of(e, n, bound, counts);
}
static int64_t count_above_f64(const double* e, int64_t n, double bound, int64_t* counts) {
  return count_above_of(e, n, bound, counts);
}

}  // namespace strata::STRATA_VEC_NS
