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
