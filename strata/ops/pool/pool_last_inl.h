// Rows of channels in windows, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// to += w from, or to = w from.
template <class C>
static void add_row(C* __restrict__ to, const C* __restrict__ from, C w, int64_t n, bool first) {
  if (first)
    for (int64_t i = 0; i < n; ++i) to[i] = w * from[i];
  else
    for (int64_t i = 0; i < n; ++i) to[i] += w * from[i];
}
// The lanes that are counted in beside those of C.
template <class C>
using CountOf = std::conditional_t<std::is_same_v<C, double>, int64_t, int32_t>;
template <class C>
struct CountLanes {
  typedef CountOf<C> type __attribute__((vector_size(kVecBytes)));
};

// Stores what was loaded from elements of T: nothing is rounded, not even to 0.
template <class T>
STRATA_INLINE void store_same(T* to, V<T> v, int64_t n) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const V16 h = __builtin_convertvector(bits<VU>(v) >> 16, V16);
    if (n == kLanes<T>)
      __builtin_memcpy(static_cast<void*>(to), &h, sizeof h);
    else
      __builtin_memcpy(static_cast<void*>(to), &h, static_cast<size_t>(n) * sizeof(T));
  } else {
    store_upto(to, v, n);
  }
}

// The largest of n pixels of `channels` elements each, channel by channel, and which it was (-1 of none): the larger
// ones stay, of equals the first, and the first NaN for good.
template <class T>
static void max_pixel_of(const T* from, const int32_t* place, int64_t n, int64_t channels, T* to, int64_t* positions) {
  using R = Real<T>;
  using Count = typename CountLanes<R>::type;
  for_vectors<T>(channels, [&](int64_t c, int64_t m) {
    V<T> best = set1(-std::numeric_limits<R>::infinity());
    if (n > 0) best = load_upto(from + place[0] * channels + c, m, R(0));
    if (!positions) {
      for (int64_t i = 1; i < n; ++i) {
        const V<T> v = load_upto(from + place[i] * channels + c, m, R(0));
        best = (v > best) | (v != v) ? v : best;
      }
    } else {
      Count at = Count{} + (n > 0 ? place[0] : -1);
      for (int64_t i = 1; i < n; ++i) {
        const V<T> v = load_upto(from + place[i] * channels + c, m, R(0));
        const auto take = (v > best) | ((v != v) & (best == best));
        best = take ? v : best;
        at = take ? Count{} + place[i] : at;
      }
      CountOf<R> places[kLanes<T>];
      __builtin_memcpy(places, &at, sizeof at);
      for (int64_t l = 0; l < m; ++l) positions[c + l] = places[l];
    }
    store_same(to + c, best, m);
  });
}
static void max_pixel(DType t, const void* from, const int32_t* place, int64_t n, int64_t channels, void* to,
                      int64_t* positions) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    max_pixel_of<T>(static_cast<const T*>(from), place, n, channels, static_cast<T*>(to), positions);
  });
}

using AddRowF32 = void (*)(float*, const float*, float, int64_t, bool);
using AddRowF64 = void (*)(double*, const double*, double, int64_t, bool);
static AddRowF32 add_row_f32() {
  return add_row<float>;
}
static AddRowF64 add_row_f64() {
  return add_row<double>;
}

}  // namespace strata::STRATA_VEC_NS
