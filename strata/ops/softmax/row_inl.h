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

// The largest of the first elements: exponentials may be taken below it without first finding the whole row's maximum,
// as long as their sum stays below kLargestSum (the maximum then lies at most 28 above); else that is found.
template <class T>
STRATA_INLINE Real<T> likely_max(const T* x, int64_t n) {
  return row_max(x, std::min<int64_t>(n, 8 * kLanes<T>));
}
constexpr float kLargestSum = 1e12f;

// log(sum of exp(x)) as two summands, for x - top - log to keep its digits where they nearly cancel.
template <class R>
struct LogSum {
  R top, log;
};
template <class T>
STRATA_INLINE LogSum<Real<T>> row_log_sum(const T* x, int64_t n) {
  using R = Real<T>;
  constexpr R kLowest = -std::numeric_limits<R>::infinity();
  if constexpr (!std::is_same_v<T, double>) {
    const float top = likely_max(x, n);
    const VF m = set1(top), log2e = set1(1.44269504088896341f);
    VF sum[4] = {};
    // Degree 5 for bf16 too: the result may be as small as the error of the sum.
    scan4(x, n, kLowest, [&](int c, VF v) { sum[c] += exp2<5>((v - m) * log2e); });
    const float total = reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (total >= 0.5f && total < kLargestSum) return {top, static_cast<float>(std::log(static_cast<double>(total)))};
  }
  const R top = row_max(x, n);
  const V<T> m = set1(top);
  V<T> sum[4] = {};
  scan4(x, n, kLowest, [&](int c, V<T> v) { sum[c] += exp(v - m); });
  return {top, std::log(reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3])))};
}

}  // namespace strata::STRATA_VEC_NS
