// Numbers among edges, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// at[i] = which of the parts between neighbours of `count` ascending edges v[i] lies in, the last edge in the last part:
// negative, or no part, outside.
template <class T>
static void parts_of_few(const T* v, int64_t n, const T* edges, int64_t count, int32_t* at) {
  using I = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  constexpr int64_t kBlock = 128;
  const T last = edges[count - 1];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = std::min(kBlock, n - begin);
    const T* const from = v + begin;
    I found[kBlock];
    for (int64_t i = 0; i < m; ++i) found[i] = from[i] == last ? I{-2} : I{-1};  // it has its upper edge
    for (int64_t e = 0; e < count; ++e) {
      const T edge = edges[e];
      for (int64_t i = 0; i < m; ++i) found[i] += edge <= from[i] ? I{1} : I{0};
    }
    for (int64_t i = 0; i < m; ++i) at[begin + i] = static_cast<int32_t>(found[i]);
  }
}

// Which of the equal boxes from `first` on each number lies in, and -1 where it is not in [first, last], else 0.
template <class T>
static void boxes_of(const T* v, int64_t n, T first, T last, T scale, int32_t boxes, int32_t* box, int32_t* outside) {
  for (int64_t i = 0; i < n; ++i) {
    const bool inside = (v[i] >= first) & (v[i] <= last);
    const auto at = static_cast<int32_t>(((inside ? v[i] : first) - first) * scale);
    box[i] = at < boxes ? at : boxes - 1;
    outside[i] = inside ? 0 : -1;
  }
}

}  // namespace strata::STRATA_VEC_NS
