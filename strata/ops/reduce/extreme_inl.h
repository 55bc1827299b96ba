// The largest or smallest number of a run, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Four independent chains. The processor's max and min forget NaN, so whether one was met is kept beside them.
template <class T, bool kLargest>
static Real<T> run_extreme(const void* run, int64_t n) {
  using R = Real<T>;
  using Vec = V<T>;
  constexpr int W = kLanes<T>;
  const T* p = static_cast<const T*>(run);
  constexpr R inf = std::numeric_limits<R>::infinity();
  const auto better = [](Vec a, Vec b) { return kLargest ? max(a, b) : min(a, b); };
  const Vec worst = set1(kLargest ? -inf : inf);
  Vec best[4] = {worst, worst, worst, worst};
  decltype(worst != worst) nan[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    for (int c = 0; c < 4; ++c) {
      const Vec v = load(p + i + c * W);
      best[c] = better(best[c], v);
      nan[c] |= v != v;
    }
  }
  for (; i < n; i += W) {
    const Vec v = n - i >= W ? load(p + i) : load_n(p + i, n - i, kLargest ? -inf : inf);
    best[0] = better(best[0], v);
    nan[0] |= v != v;
  }
  R lanes[W];
  store(lanes, better(better(best[0], best[1]), better(best[2], best[3])));
  const auto met = nan[0] | nan[1] | nan[2] | nan[3];
  R result = lanes[0];
  for (int k = 0; k < W; ++k) {
    if (met[k] != 0) return std::numeric_limits<R>::quiet_NaN();
    result = kLargest ? (lanes[k] > result ? lanes[k] : result) : (lanes[k] < result ? lanes[k] : result);
  }
  return result;
}

static void widen_halves(const Half* from, int64_t n, float* to) {
  for_vectors<Half>(n, [&](int64_t i, int64_t m) { store_upto(to + i, load_upto(from + i, m, 0), m); });
}

typedef float (*RunExtreme)(const void* run, int64_t n);
static RunExtreme run_extreme_of(DType t, bool largest) {
  if (t == DType::f32) return largest ? run_extreme<float, true> : run_extreme<float, false>;
  if (t == DType::bf16) return largest ? run_extreme<BFloat16, true> : run_extreme<BFloat16, false>;
  return largest ? run_extreme<Half, true> : run_extreme<Half, false>;
}

// Integers: rows of lanes that the compiler lays into vectors.
template <class I, bool kLargest>
static void run_extreme_of_ints(const void* run, int64_t n, void* result) {
  constexpr int64_t kRow = 64;
  const I* p = static_cast<const I*>(run);
  const auto better = [](I a, I b) { return kLargest ? (a > b ? a : b) : (a < b ? a : b); };
  I best[kRow];
  for (I& b : best) b = kLargest ? std::numeric_limits<I>::lowest() : std::numeric_limits<I>::max();
  int64_t i = 0;
  for (; i + kRow <= n; i += kRow)
    for (int64_t j = 0; j < kRow; ++j) best[j] = better(best[j], p[i + j]);
  for (; i < n; ++i) best[0] = better(best[0], p[i]);
  for (int64_t j = 1; j < kRow; ++j) best[0] = better(best[0], best[j]);
  *static_cast<I*>(result) = best[0];
}

typedef void (*RunExtremeOfInts)(const void* run, int64_t n, void* result);
static RunExtremeOfInts run_extreme_of_type(DType t, bool largest) {
  switch (t) {
    case DType::i64:
      return largest ? run_extreme_of_ints<int64_t, true> : run_extreme_of_ints<int64_t, false>;
    case DType::i32:
      return largest ? run_extreme_of_ints<int32_t, true> : run_extreme_of_ints<int32_t, false>;
    case DType::i16:
      return largest ? run_extreme_of_ints<int16_t, true> : run_extreme_of_ints<int16_t, false>;
    case DType::i8:
      return largest ? run_extreme_of_ints<int8_t, true> : run_extreme_of_ints<int8_t, false>;
    default:
      return largest ? run_extreme_of_ints<uint8_t, true> : run_extreme_of_ints<uint8_t, false>;
  }
}

typedef double (*RunExtremeOfDoubles)(const void* run, int64_t n);
static RunExtremeOfDoubles run_extreme_of_doubles(bool largest) {
  return largest ? run_extreme<double, true> : run_extreme<double, false>;
}

}  // namespace strata::STRATA_VEC_NS
