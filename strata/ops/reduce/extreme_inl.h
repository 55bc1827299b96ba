// The largest or smallest number of a run, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Four independent chains. The processor's max and min forget NaN, so whether one was met is kept beside them.
template <class T, bool kLargest> static float run_extreme(const void* run, int64_t n) {
  const T* p = static_cast<const T*>(run);
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto better = [](VF a, VF b) { return kLargest ? max(a, b) : min(a, b); };
  const VF worst = set1(kLargest ? -inf : inf);
  VF best[4] = {worst, worst, worst, worst};
  VI nan[4] = {};
  int64_t i = 0;
  for (; i + 4 * kW <= n; i += 4 * kW) {
    for (int c = 0; c < 4; ++c) {
      const VF v = load(p + i + c * kW);
      best[c] = better(best[c], v);
      nan[c] |= v != v;
    }
  }
  for (; i < n; i += kW) {
    const VF v = n - i >= kW ? load(p + i) : load_n(p + i, n - i, kLargest ? -inf : inf);
    best[0] = better(best[0], v);
    nan[0] |= v != v;
  }
  float lanes[kW];
  int32_t nans[kW];
  store(lanes, better(better(best[0], best[1]), better(best[2], best[3])));
  const VI met = nan[0] | nan[1] | nan[2] | nan[3];
  __builtin_memcpy(nans, &met, sizeof nans);
  float result = lanes[0];
  for (int k = 0; k < kW; ++k) {
    if (nans[k]) return std::numeric_limits<float>::quiet_NaN();
    result = kLargest ? (lanes[k] > result ? lanes[k] : result) : (lanes[k] < result ? lanes[k] : result);
  }
  return result;
}

typedef float (*RunExtreme)(const void* run, int64_t n);
static RunExtreme run_extreme_of(DType t, bool largest) {
  if (t == DType::f32) return largest ? run_extreme<float, true> : run_extreme<float, false>;
  if (t == DType::bf16) return largest ? run_extreme<BFloat16, true> : run_extreme<BFloat16, false>;
  return largest ? run_extreme<Half, true> : run_extreme<Half, false>;
}

}  // namespace strata::STRATA_VEC_NS
