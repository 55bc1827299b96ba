// SwiGLU, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
static void swiglu_of(const SwigluCall& c) {
  const T *a = static_cast<const T*>(c.a), *b = static_cast<const T*>(c.b);
  T* y = static_cast<T*>(c.y);
  const bool nt = should_stream(y, c.rows, c.n);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / c.n), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const auto value = [&](int64_t i, int64_t k) {
        const V<T> av = load_upto(a + r * c.a_row + i, k, 0);
        return av * sigmoid(av) * load_upto(b + r * c.b_row + i, k, 0);
      };
      if (nt) {
        for (int64_t i = 0; i < c.n; i += kLanes<T>) stream(y + r * c.n + i, value(i, kLanes<T>));
      } else {
        for_vectors<T>(c.n, [&](int64_t i, int64_t k) { store_upto(y + r * c.n + i, value(i, k), k); });
      }
    }
    if (nt) stream_fence();
  });
}

template <class T>
static void swiglu_backward_of(const SwigluCall& c) {
  const T *a = static_cast<const T*>(c.a), *b = static_cast<const T*>(c.b), *g = static_cast<const T*>(c.grad_y);
  T *ga = static_cast<T*>(c.grad_a), *gb = static_cast<T*>(c.grad_b);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / c.n), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      for_vectors<T>(c.n, [&](int64_t i, int64_t k) {
        const V<T> av = load_upto(a + r * c.a_row + i, k, 0), bv = load_upto(b + r * c.b_row + i, k, 0);
        const V<T> gv = load_upto(g + r * c.n + i, k, 0), s = sigmoid(av);
        store_upto(ga + r * c.grad_a_row + i, gv * bv * s * (1 + av * (1 - s)), k);
        store_upto(gb + r * c.grad_b_row + i, gv * av * s, k);
      });
    }
  });
}

static void swiglu(const SwigluCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { swiglu_of<decltype(tag)>(c); });
}
static void swiglu_backward(const SwigluCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { swiglu_backward_of<decltype(tag)>(c); });
}

}  // namespace strata::STRATA_VEC_NS
