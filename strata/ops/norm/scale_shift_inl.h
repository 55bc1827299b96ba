// Elements times a number plus another, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// y = x * a + b of n elements.
static void scale_run(DType t, const void* x, void* y, int64_t n, double a, double b) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    const V<T> by = set1(static_cast<Real<T>>(a)), plus = set1(static_cast<Real<T>>(b));
    for_vectors<T>(n, [&](int64_t i, int64_t m) { store_upto(to + i, fma(load_upto(from + i, m, 0), by, plus), m); });
  });
}

// y[i] = x[i] * a[i] + b[i] of n elements; a and b are of the arithmetic type.
static void scale_each(DType t, const void* x, void* y, int64_t n, const void* a, const void* b) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    const Real<T>*by = static_cast<const Real<T>*>(a), *plus = static_cast<const Real<T>*>(b);
    for_vectors<T>(n, [&](int64_t i, int64_t m) {
      store_upto(to + i, fma(load_upto(from + i, m, 0), load_upto(by + i, m, 0), load_upto(plus + i, m, 0)), m);
    });
  });
}

}  // namespace strata::STRATA_VEC_NS
