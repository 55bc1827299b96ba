// Rows joined with rows, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Without branches, which would be guessed wrong; a NaN stays, as joined() has it.
template <Join join, class C>
STRATA_INLINE C joined_lanes(C total, C v) {
  if constexpr (join == Join::prod)
    return total * v;
  else if constexpr (join == Join::amax)
    return (v != v) | (v > total) ? v : total;
  else if constexpr (join == Join::amin)
    return (v != v) | (v < total) ? v : total;
  else
    return total + v;
}
template <Join join, class T>
STRATA_INLINE void join_floats(const T* from, Real<T>* to, int64_t n) {
  for_vectors<T>(n, [&](int64_t i, int64_t k) {
    store_upto(to + i, joined_lanes<join>(load_upto(to + i, k, 0), load_upto(from + i, k, 0)), k);
  });
}
// The low bits of whole numbers, which are those of any wider type's.
template <Join join, class T>
STRATA_INLINE void join_ints(const T* __restrict__ from, T* __restrict__ to, int64_t n) {
  using U = std::make_unsigned_t<T>;
  for (int64_t i = 0; i < n; ++i) {
    const T total = to[i], v = from[i];
    if constexpr (join == Join::prod)
      to[i] = static_cast<T>(static_cast<U>(uint64_t{static_cast<U>(total)} * static_cast<U>(v)));
    else if constexpr (join == Join::amax)
      to[i] = v > total ? v : total;
    else if constexpr (join == Join::amin)
      to[i] = v < total ? v : total;
    else
      to[i] = static_cast<T>(static_cast<U>(static_cast<U>(total) + static_cast<U>(v)));
  }
}
// Whether there is one, or none is missing.
template <Join join>
STRATA_INLINE void join_bits(const bool* __restrict__ from, bool* __restrict__ to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const bool total = to[i], v = from[i];
    to[i] = join == Join::prod || join == Join::amin ? total & v : total | v;
  }
}
template <class Row>
static void join_row(const typename Row::Element* from, typename Row::Total* to, int64_t n) {
  using T = typename Row::Element;
  if constexpr (std::is_same_v<T, bool>)
    join_bits<Row::join>(from, to, n);
  else if constexpr (std::is_integral_v<T>)
    join_ints<Row::join, T>(from, to, n);
  else
    join_floats<Row::join, T>(from, to, n);
}

}  // namespace strata::STRATA_VEC_NS
