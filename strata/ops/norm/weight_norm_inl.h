// weight_norm of rows and its gradient, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
static void weight_norm_row(const T* gy, const T* v, Real<T> wanted, int64_t n, T* gv, T* gg) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>, kBlock = 64 * W;
  Vec along = {}, squares = {};
  for (int64_t i = 0; i < n; i += kBlock) {
    Vec a[2] = {}, s[2] = {};
    const int64_t end = std::min(n, i + kBlock);
    int64_t j = i;
    for (; j + 2 * W <= end; j += 2 * W) {
      for (int c = 0; c < 2; ++c) {
        const Vec x = load(v + j + c * W);
        a[c] = fma(load(gy + j + c * W), x, a[c]);
        s[c] = fma(x, x, s[c]);
      }
    }
    for (; j < end; j += W) {
      const int64_t m = std::min(W, end - j);
      const Vec x = load_upto(v + j, m, 0);
      a[0] = fma(load_upto(gy + j, m, 0), x, a[0]);
      s[0] = fma(x, x, s[0]);
    }
    along += a[0] + a[1];
    squares += s[0] + s[1];
  }
  const Real<T> dot = reduce_add(along), square = reduce_add(squares), length = std::sqrt(square);
  const Real<T> scale = wanted / length;
  const Vec by = set1(scale), back = set1(-(scale * (dot / length) / length));
  for_vectors<T>(n, [&](int64_t i, int64_t m) {
    store_upto(gv + i, fma(load_upto(gy + i, m, 0), by, load_upto(v + i, m, 0) * back), m);
  });
  put(*gg, dot / length);
}

template <class T>
static void weight_norm_row(const T* v, Real<T> wanted, int64_t n, T* y) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>, kBlock = 64 * W;
  Vec squares = {};
  for (int64_t i = 0; i < n; i += kBlock) {
    Vec s[2] = {};
    const int64_t end = std::min(n, i + kBlock);
    int64_t j = i;
    for (; j + 2 * W <= end; j += 2 * W) {
      for (int c = 0; c < 2; ++c) {
        const Vec x = load(v + j + c * W);
        s[c] = fma(x, x, s[c]);
      }
    }
    for (; j < end; j += W) {
      const Vec x = load_upto(v + j, std::min(W, end - j), 0);
      s[0] = fma(x, x, s[0]);
    }
    squares += s[0] + s[1];
  }
  const Vec by = set1(wanted / std::sqrt(reduce_add(squares)));
  for_vectors<T>(n, [&](int64_t i, int64_t m) { store_upto(y + i, load_upto(v + i, m, 0) * by, m); });
}

static void weight_norm(DType t, const void* v, const void* g, int64_t rows, int64_t n, void* y) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        weight_norm_row(static_cast<const T*>(v) + i * n, get(static_cast<const T*>(g)[i]), n,
                        static_cast<T*>(y) + i * n);
    });
  });
}

static void weight_norm_backward(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n,
                                 void* gv, void* gg) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        weight_norm_row(static_cast<const T*>(gy) + i * n, static_cast<const T*>(v) + i * n,
                        get(static_cast<const T*>(g)[i]), n, static_cast<T*>(gv) + i * n, static_cast<T*>(gg) + i);
    });
  });
}

}  // namespace strata::STRATA_VEC_NS
