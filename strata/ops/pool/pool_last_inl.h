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
// The larger ones stay, of equals the first, and the first NaN for good.
template <class C>
static void max_row(C* __restrict__ best, int32_t* __restrict__ place, const C* __restrict__ from, int32_t at,
                    int64_t n, bool first) {
  for (int64_t i = 0; i < n; ++i) {
    const C v = from[i], b = best[i];
    const bool take = first | (v > b) | ((v != v) & (b == b));
    best[i] = take ? v : b;
    place[i] = take ? at : place[i];
  }
}
using AddRowF32 = void (*)(float*, const float*, float, int64_t, bool);
using AddRowF64 = void (*)(double*, const double*, double, int64_t, bool);
using MaxRowF32 = void (*)(float*, int32_t*, const float*, int32_t, int64_t, bool);
using MaxRowF64 = void (*)(double*, int32_t*, const double*, int32_t, int64_t, bool);
static AddRowF32 add_row_f32() {
  return add_row<float>;
}
static AddRowF64 add_row_f64() {
  return add_row<double>;
}
static MaxRowF32 max_row_f32() {
  return max_row<float>;
}
static MaxRowF64 max_row_f64() {
  return max_row<double>;
}

}  // namespace strata::STRATA_VEC_NS
