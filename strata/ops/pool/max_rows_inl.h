// Windows' largest elements and sums, many windows side by side or one after the other, for one processor level. No
// include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// One element of each of n windows that are `stride` elements apart: from[j * stride], at place at + j * stride. The
// larger one stays, of equals the first, and the first NaN for good.
template <class C, int kStride>
STRATA_INLINE void max_tap(const C* __restrict__ from, int32_t stride, int32_t at, C* __restrict__ best,
                           int32_t* __restrict__ place, int32_t n) {
  if constexpr (kStride > 0) stride = kStride;
  for (int32_t j = 0; j < n; ++j) {
    const C v = from[static_cast<int64_t>(j) * stride], b = best[j];
    const int32_t before = place[j];
    const bool take = (v > b) | ((v != v) & (b == b));
    best[j] = take ? v : b;
    place[j] = take ? at + j * stride : before;
  }
}
template <class C>
static void max_taps(const void* input, int32_t stride, int32_t at, void* largest, int32_t* place, int32_t n,
                     bool first) {
  const C* from = static_cast<const C*>(input) + at;
  C* best = static_cast<C*>(largest);
  if (first) {
    for (int32_t j = 0; j < n; ++j) best[j] = from[static_cast<int64_t>(j) * stride], place[j] = at + j * stride;
    return;
  }
  if (stride == 1)
    max_tap<C, 1>(from, stride, at, best, place, n);
  else if (stride == 2)
    max_tap<C, 2>(from, stride, at, best, place, n);
  else if (stride == 3)
    max_tap<C, 3>(from, stride, at, best, place, n);
  else
    max_tap<C, 0>(from, stride, at, best, place, n);
}
using MaxTaps = void (*)(const void*, int32_t, int32_t, void*, int32_t*, int32_t, bool);
static MaxTaps max_taps_of(bool in_double) {
  return in_double ? max_taps<double> : max_taps<float>;
}

// The same without places.
template <class C, int kStride>
STRATA_INLINE void max_value_tap(const C* __restrict__ from, int32_t stride, C* __restrict__ best, int32_t n) {
  if constexpr (kStride > 0) stride = kStride;
  for (int32_t j = 0; j < n; ++j) {
    const C v = from[static_cast<int64_t>(j) * stride], b = best[j];
    best[j] = (v > b) | (v != v) ? v : b;
  }
}
template <class C>
static void max_values(const void* input, int32_t stride, int32_t at, void* largest, int32_t*, int32_t n, bool first) {
  const C* from = static_cast<const C*>(input) + at;
  C* best = static_cast<C*>(largest);
  if (first)
    for (int32_t j = 0; j < n; ++j) best[j] = from[static_cast<int64_t>(j) * stride];
  else if (stride == 1)
    max_value_tap<C, 1>(from, stride, best, n);
  else if (stride == 2)
    max_value_tap<C, 2>(from, stride, best, n);
  else
    max_value_tap<C, 0>(from, stride, best, n);
}
static MaxTaps max_values_of(bool in_double) {
  return in_double ? max_values<double> : max_values<float>;
}

// As many elements as a vector has, every second one; what is read ends with the last of them.
template <class C, size_t... I>
STRATA_INLINE V<C> every_second(const C* p, std::index_sequence<I...>) {
  constexpr size_t kCount = sizeof...(I);
  V<C> a, b;
  __builtin_memcpy(&a, p, sizeof a);
  __builtin_memcpy(&b, p + kCount - 1, sizeof b);
  return __builtin_shufflevector(a, b, static_cast<int>(I < kCount / 2 ? 2 * I : 2 * I + 1)...);
}
// The same of every third one, from three vectors.
template <class C, size_t... I>
STRATA_INLINE V<C> every_third(const C* p, std::index_sequence<I...>) {
  constexpr size_t kCount = sizeof...(I), kLast = 2 * (kCount - 1);  // where the third vector begins
  V<C> a, b, c;
  __builtin_memcpy(&a, p, sizeof a);
  __builtin_memcpy(&b, p + kCount, sizeof b);
  __builtin_memcpy(&c, p + kLast, sizeof c);
  const V<C> low = __builtin_shufflevector(a, b, static_cast<int>(3 * I < 2 * kCount ? 3 * I : 0)...);
  return __builtin_shufflevector(low, c, static_cast<int>(3 * I < 2 * kCount ? I : kCount + 3 * I - kLast)...);
}
template <class C, int kStride>
STRATA_INLINE V<C> load_apart(const C* p) {
  if constexpr (kStride == 1)
    return load(p);
  else if constexpr (kStride == 3)
    return every_third(p, std::make_index_sequence<kLanes<C>>{});
  else
    return every_second(p, std::make_index_sequence<kLanes<C>>{});
}
template <class C, int kStride>
STRATA_INLINE void max_windows_apart(const C* from, int32_t step, int32_t count, C* to, int64_t n) {
  constexpr int64_t kCount = kLanes<C>;
  for (int64_t j = 0;; j = std::min(j + kCount, n - kCount)) {  // the last vector ends where the windows do
    V<C> best = load_apart<C, kStride>(from + j * kStride);
    for (int32_t b = 1; b < count; ++b) {
      const V<C> v = load_apart<C, kStride>(from + j * kStride + static_cast<int64_t>(b) * step);
      best = (v > best) | (v != v) ? v : best;
    }
    store(to + j, best);
    if (j + kCount >= n) return;
  }
}
// All elements of each window at once where the windows are near each other, else one tap after the other.
template <class C>
static void max_windows(const C* from, int32_t stride, int32_t step, int32_t count, C* to, int32_t n) {
  if (stride == 1 && n >= kLanes<C>) return max_windows_apart<C, 1>(from, step, count, to, n);
  if (stride == 2 && n >= kLanes<C>) return max_windows_apart<C, 2>(from, step, count, to, n);
  if (stride == 3 && n >= kLanes<C>) return max_windows_apart<C, 3>(from, step, count, to, n);
  for (int32_t b = 0; b < count; ++b) max_values<C>(from, stride, b * step, to, nullptr, n, b == 0);
}

// The largest of n > 0 neighbours, and place[i] of it, or i where place is null: the least place of equal ones, and of
// NaN where there is one.
template <class C>
static int32_t best_of_run(const C* from, const int32_t* place, int64_t n, C* best) {
  constexpr C kLeast = -std::numeric_limits<C>::infinity();
  V<C> largest = set1(kLeast), odd = {};
  for_vectors<C>(n, [&](int64_t i, int64_t m) {
    const V<C> v = load_upto(from + i, m, kLeast);
    largest = v > largest ? v : largest;
    odd = v != v ? set1(C(1)) : odd;
  });
  const C most = reduce_max(largest);
  const bool nan = reduce_max(odd) > 0;
  const auto is_best = [&](C v) { return nan ? v != v : v == most; };
  int64_t i = 0;
  if (!place) {
#if STRATA_VEC_LEVEL >= 2
    if constexpr (std::is_same_v<C, float>) {
      for (;; i += kLanes<C>) {
        const V<C> v = load_upto(from + i, std::min<int64_t>(kLanes<C>, n - i), kLeast);
        const __mmask16 found =
            nan ? _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) : _mm512_cmp_ps_mask(v, set1(most), _CMP_EQ_OQ);
        if (found == 0) continue;
        i += __builtin_ctz(found);
        *best = from[i];
        return static_cast<int32_t>(i);
      }
    }
#endif
    for (constexpr int64_t kBlock = 32; i + kBlock <= n; i += kBlock) {
      int32_t found = 0;
      for (int64_t l = 0; l < kBlock; ++l) found |= nan ? from[i + l] != from[i + l] : from[i + l] == most;
      if (found) break;
    }
    while (!is_best(from[i])) ++i;
    *best = from[i];
    return static_cast<int32_t>(i);
  }
  int64_t at = -1;
  for (i = 0; i < n; ++i)
    if (is_best(from[i]) && (at < 0 || place[i] < place[at])) at = i;
  *best = from[at];
  return place[at];
}

// The sum of n neighbours.
template <class C>
static C sum_of_run(const C* from, int64_t n) {
  V<C> sum = {};
  for_vectors<C>(n, [&](int64_t i, int64_t m) { sum += load_upto(from + i, m, 0); });
  return reduce_add(sum);
}

// to[j] = the sum of weight[b] * from[j * stride + b * step] over b < count; kUniform: of one weight.
template <class C, int kStride>
STRATA_INLINE void sum_these_taps(const C* __restrict__ from, int64_t stride, int64_t step, int64_t count,
                                  const C* weight, bool uniform, C* __restrict__ to, int64_t n) {
  if constexpr (kStride > 0) stride = kStride;
  for (int64_t b = 0; b < count; ++b) {
    const C w = uniform ? C(1) : weight[b];
    const C* at = from + b * step;
    if (b == 0)
      for (int64_t j = 0; j < n; ++j) to[j] = w * at[j * stride];
    else
      for (int64_t j = 0; j < n; ++j) to[j] += w * at[j * stride];
  }
  if (uniform)
    for (int64_t j = 0; j < n; ++j) to[j] *= weight[0];
}
template <class C>
static void sum_taps(const C* from, int64_t stride, int64_t step, int64_t count, const C* weight, bool uniform, C* to,
                     int64_t n) {
  if (stride == 1)
    sum_these_taps<C, 1>(from, stride, step, count, weight, uniform, to, n);
  else if (stride == 2)
    sum_these_taps<C, 2>(from, stride, step, count, weight, uniform, to, n);
  else
    sum_these_taps<C, 0>(from, stride, step, count, weight, uniform, to, n);
}

}  // namespace strata::STRATA_VEC_NS
