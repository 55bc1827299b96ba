// Windows' largest elements, many windows side by side, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// One element of each of n windows that are `stride` elements apart: from[j * stride], at place at + j * stride. The
// larger one stays, of equals the first, and the first NaN for good.
template <class C, int kStride>
STRATA_INLINE void max_tap(const C* __restrict__ from, int32_t stride, int32_t at, C* __restrict__ best,
                           int32_t* __restrict__ place, int32_t n) {
  if constexpr (kStride > 0) stride = kStride;
  for (int32_t j = 0; j < n; ++j) {
    const C v = from[static_cast<int64_t>(j) * stride], b = best[j];
    const bool take = (v > b) | ((v != v) & (b == b));
    best[j] = take ? v : b;
    place[j] = take ? at + j * stride : place[j];
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

}  // namespace strata::STRATA_VEC_NS
