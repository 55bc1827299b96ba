// Positions of a few planes that lie side by side, [pixel][W], for one processor level: what a position reads of them
// is one vector. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class R, int W>
struct SideLanes {
  typedef R type __attribute__((vector_size(W * sizeof(R))));
};
template <class R, int W>
using Side = typename SideLanes<R, W>::type;

template <class R, int W>
STRATA_INLINE Side<R, W> side_load(const R* p) {
  Side<R, W> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class R, int W>
STRATA_INLINE void side_store(R* p, Side<R, W> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// values[i] = the sum over position i's taps of weight times pixel.
template <class R, int W, int Taps>
static void read_points(const SampleReads& r, const R* pixels, R* values, int64_t n) {
  const R* weight = static_cast<const R*>(r.weight);
  for (int64_t i = 0; i < n; ++i) {
    Side<R, W> sum = {};
    for (int t = 0; t < Taps; ++t)
      sum += weight[i * Taps + t] * side_load<R, W>(pixels + int64_t{r.at[i * Taps + t]} * W);
    side_store<R, W>(values + i * W, sum);
  }
}
// The transpose: values[i] times its weights added to the pixels.
template <class R, int W, int Taps>
static void spread_points(const SampleReads& r, const R* values, R* pixels, int64_t n) {
  const R* weight = static_cast<const R*>(r.weight);
  for (int64_t i = 0; i < n; ++i) {
    const Side<R, W> v = side_load<R, W>(values + i * W);
    for (int t = 0; t < Taps; ++t) {
      R* const to = pixels + int64_t{r.at[i * Taps + t]} * W;
      side_store<R, W>(to, side_load<R, W>(to) + weight[i * Taps + t] * v);
    }
  }
}
// products[i][t] = the sum over the planes of values[i] times the pixel of tap t.
template <class R, int W, int Taps>
static void multiply_points(const SampleReads& r, const R* values, const R* pixels, R* products, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const Side<R, W> v = side_load<R, W>(values + i * W);
    for (int t = 0; t < Taps; ++t) {
      const Side<R, W> p = v * side_load<R, W>(pixels + int64_t{r.at[i * Taps + t]} * W);
      R lanes[W];
      side_store<R, W>(lanes, p);
      for (int half = W / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      products[i * Taps + t] = lanes[0];
    }
  }
}

// Calls f with the type, the lanes and the taps of a call, as types.
template <class F>
STRATA_INLINE void dispatch_reads(const SampleReads& r, F&& f) {
  const auto taps = [&](auto real, auto lanes) {
    switch (r.taps) {
      case 1:
        return f(real, lanes, std::integral_constant<int, 1>{});
      case 4:
        return f(real, lanes, std::integral_constant<int, 4>{});
      case 8:
        return f(real, lanes, std::integral_constant<int, 8>{});
      default:
        return f(real, lanes, std::integral_constant<int, 16>{});
    }
  };
  if (r.in_double) return taps(double{}, std::integral_constant<int, 8>{});
  if (r.lanes == 16) return taps(float{}, std::integral_constant<int, 16>{});
  taps(float{}, std::integral_constant<int, 4>{});
}
static void sample_read(const SampleReads& r, const void* pixels, void* values, int64_t n) {
  dispatch_reads(r, [&](auto real, auto lanes, auto taps) {
    using R = decltype(real);
    read_points<R, lanes(), taps()>(r, static_cast<const R*>(pixels), static_cast<R*>(values), n);
  });
}
static void sample_spread(const SampleReads& r, const void* values, void* pixels, int64_t n) {
  dispatch_reads(r, [&](auto real, auto lanes, auto taps) {
    using R = decltype(real);
    spread_points<R, lanes(), taps()>(r, static_cast<const R*>(values), static_cast<R*>(pixels), n);
  });
}
static void sample_multiply(const SampleReads& r, const void* values, const void* pixels, void* products, int64_t n) {
  dispatch_reads(r, [&](auto real, auto lanes, auto taps) {
    using R = decltype(real);
    multiply_points<R, lanes(), taps()>(r, static_cast<const R*>(values), static_cast<const R*>(pixels),
                                        static_cast<R*>(products), n);
  });
}

}  // namespace strata::STRATA_VEC_NS
