// The largest or smallest whole number of a run, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

static void widen_halves(const Half* from, int64_t n, float* to) {
  for_vectors<Half>(n, [&](int64_t i, int64_t m) { store_upto(to + i, load_upto(from + i, m, 0), m); });
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

// Both in one reading.
template <class I>
STRATA_INLINE void run_both_of_ints(const I* p, int64_t n, I& low, I& high) {
  constexpr int64_t kRow = 256 / sizeof(I);
  I least[kRow], most[kRow];
  for (int64_t j = 0; j < kRow; ++j)
    least[j] = std::numeric_limits<I>::max(), most[j] = std::numeric_limits<I>::lowest();
  int64_t i = 0;
  for (; i + kRow <= n; i += kRow)
    for (int64_t j = 0; j < kRow; ++j) {
      const I x = p[i + j];
      least[j] = x < least[j] ? x : least[j];
      most[j] = x > most[j] ? x : most[j];
    }
  for (; i < n; ++i) least[0] = std::min(least[0], p[i]), most[0] = std::max(most[0], p[i]);
  for (int64_t half = kRow / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) {
      least[j] = std::min(least[j], least[j + half]);
      most[j] = std::max(most[j], most[j + half]);
    }
  low = least[0], high = most[0];
}
static void both_of_ints(DType t, const void* p, int64_t n, void* low, void* high) {
  dispatch_ints(t, "aminmax", [&]<class I>() {
    run_both_of_ints(static_cast<const I*>(p), n, *static_cast<I*>(low), *static_cast<I*>(high));
  });
}

// The same of floats, of which NaN wins both.
static void both_of_floats(const float* p, int64_t n, float* low, float* high) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr int64_t kChains = 4, kStep = kChains * kW;
  VF least[kChains], most[kChains], odd[kChains];
  for (int64_t c = 0; c < kChains; ++c) least[c] = set1(kInf), most[c] = set1(-kInf), odd[c] = VF{};
  const auto take = [&](int64_t c, VF v) {
    least[c] = v < least[c] ? v : least[c];
    most[c] = v > most[c] ? v : most[c];
    odd[c] = v != v ? v : odd[c];
  };
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep)
    for (int64_t c = 0; c < kChains; ++c) take(c, load(p + i + c * kW));
  for (; i < n; i += kW) take(0, load_upto(p + i, std::min<int64_t>(kW, n - i), p[i]));
  for (int64_t c = 1; c < kChains; ++c) {
    odd[0] = odd[c] != odd[c] ? odd[c] : odd[0];
    least[0] = least[c] < least[0] ? least[c] : least[0];
    most[0] = most[c] > most[0] ? most[c] : most[0];
  }
  const float nan = reduce_add(odd[0]);
  *low = nan != nan ? nan : -reduce_max(-least[0]);
  *high = nan != nan ? nan : reduce_max(most[0]);
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

}  // namespace strata::STRATA_VEC_NS
