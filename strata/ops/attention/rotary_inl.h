// Rotary position embedding, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
static void rotary_of(const RotaryCall& c) {
  using R = Real<T>;
  const R sign = c.inverse ? R(-1) : R(1);
  const T* x0 = static_cast<const T*>(c.x);
  T* y0 = static_cast<T*>(c.y);
  const int64_t p = c.pairs, rows = c.outer[0] * c.outer[1] * c.outer[2] * c.time;
  parallel_for(0, rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, c.d)), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const int64_t t = r % c.time, k = r / c.time % c.outer[2], j = r / c.time / c.outer[2] % c.outer[1],
                    i = r / c.time / c.outer[2] / c.outer[1];
      const auto at = [&](const int64_t* s) { return i * s[0] + j * s[1] + k * s[2] + t * s[3]; };
      const T* x = x0 + at(c.x_stride);
      T* y = y0 + at(c.y_stride);
      if (k >= c.turned) {
        std::copy_n(x, c.d, y);
        continue;
      }
      const R *co = static_cast<const R*>(c.cos) + t * p, *si = static_cast<const R*>(c.sin) + t * p;
      if (c.interleaved) {
        for (int64_t n = 0; n < p; ++n) {
          const R a = get(x[2 * n]), b = get(x[2 * n + 1]), s = si[n] * sign;
          put(y[2 * n], a * co[n] - b * s);
          put(y[2 * n + 1], a * s + b * co[n]);
        }
      } else {
        for_vectors<T>(p, [&](int64_t n, int64_t m) {
          const V<T> a = load_upto(x + n, m, 0), b = load_upto(x + p + n, m, 0);
          const V<T> cv = load_upto(co + n, m, 0), s = load_upto(si + n, m, 0) * sign;
          store_upto(y + n, a * cv - b * s, m);
          store_upto(y + p + n, a * s + b * cv, m);
        });
      }
      for (int64_t n = 2 * p; n < c.d; ++n) y[n] = x[n];
    }
  });
}

static void rotary(const RotaryCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { rotary_of<decltype(tag)>(c); });
}

}  // namespace strata::STRATA_VEC_NS
