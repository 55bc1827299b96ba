// Reductions of one row, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Reads n elements in vectors of T with four independent chains: body(chain, vector), `fill` in unused lanes.
template <class T, class F>
STRATA_INLINE void scan4(const T* p, int64_t n, Real<T> fill, F&& body) {
  constexpr int W = kLanes<T>;
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    body(0, load(p + i));
    body(1, load(p + i + W));
    body(2, load(p + i + 2 * W));
    body(3, load(p + i + 3 * W));
  }
  for (; i + W <= n; i += W) body(0, load(p + i));
  if (i < n) body(1, load_n(p + i, n - i, fill));
}

template <class T>
STRATA_INLINE Real<T> row_max(const T* x, int64_t n) {
  const V<T> low = set1(-std::numeric_limits<Real<T>>::infinity());
  V<T> m[4] = {low, low, low, low};
  scan4(x, n, -std::numeric_limits<Real<T>>::infinity(), [&](int c, V<T> v) { m[c] = max(m[c], v); });
  return reduce_max(max(max(m[0], m[1]), max(m[2], m[3])));
}

// max + log(sum of exp(x - max))
template <class T>
STRATA_INLINE Real<T> row_logsumexp(const T* x, int64_t n) {
  using R = Real<T>;
  const R top = row_max(x, n);
  const V<T> m = set1(top);
  V<T> sum[4] = {};
  scan4(x, n, -std::numeric_limits<R>::infinity(), [&](int c, V<T> v) { sum[c] += exp_below<T>(v - m); });
  return top + std::log(reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3])));
}

}  // namespace strata::STRATA_VEC_NS
