// The largest or smallest element of each column with its place, for one processor level: plain loops, which the
// compiler makes vectors of. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class C, bool kLargest>
STRATA_INLINE void index_step(C v, int32_t k, C& best, int32_t& place) {
  const bool take = (kLargest ? v > best : v < best) | ((v != v) & (best == best));
  best = take ? v : best;
  place = take ? k : place;
}
template <class C, int kRows, bool kLargest>
STRATA_INLINE void index_rows_of(const C* __restrict__ p, int64_t stride, int32_t k, int32_t n, C* __restrict__ best,
                                 int32_t* __restrict__ place) {
  for (int32_t j = 0; j < n; ++j) {
    C b = best[j];
    int32_t at = place[j];
    for (int32_t r = 0; r < kRows; ++r) index_step<C, kLargest>(p[r * stride + j], k + r, b, at);
    best[j] = b;
    place[j] = at;
  }
}
template <class T, bool kLargest>
static void columns_of(const void* x, int64_t rows, int64_t stride, int64_t width, void* result, int32_t* place) {
  using C = compute_t<T>;
  const T* p = static_cast<const T*>(x);
  C* best = static_cast<C*>(result);
  const int32_t n = static_cast<int32_t>(width), count = static_cast<int32_t>(rows);
  for (int32_t j = 0; j < n; ++j) best[j] = static_cast<C>(p[j]), place[j] = 0;
  int32_t k = 1;
  if constexpr (std::is_same_v<T, C>) {
    for (; k + 4 <= count; k += 4) index_rows_of<C, 4, kLargest>(p + k * stride, stride, k, n, best, place);
    for (; k < count; ++k) index_rows_of<C, 1, kLargest>(p + k * stride, stride, k, n, best, place);
  } else {
    alignas(64) C wide[4 * kIndexWidth];
    for (; k < count; k += 4) {
      const int32_t some = std::min(4, count - k);
      for (int32_t r = 0; r < some; ++r)
        for_vectors<T>(n, [&](int64_t j, int64_t m) {
          store_upto<C>(wide + r * kIndexWidth + j, load_upto(p + (k + r) * stride + j, m, 0), m);
        });
      if (some == 4)
        index_rows_of<C, 4, kLargest>(wide, kIndexWidth, k, n, best, place);
      else
        for (int32_t r = 0; r < some; ++r)
          index_rows_of<C, 1, kLargest>(wide + r * kIndexWidth, kIndexWidth, k + r, n, best, place);
    }
  }
}

template <class T>
static IndexColumns columns_of_type(bool largest) {
  return largest ? columns_of<T, true> : columns_of<T, false>;
}
static IndexColumns index_columns_of(DType t, bool largest) {
  switch (t) {
    case DType::f64:
      return columns_of_type<double>(largest);
    case DType::f32:
      return columns_of_type<float>(largest);
    case DType::bf16:
      return columns_of_type<BFloat16>(largest);
    case DType::f16:
      return columns_of_type<Half>(largest);
    case DType::i64:
      return columns_of_type<int64_t>(largest);
    case DType::i32:
      return columns_of_type<int32_t>(largest);
    case DType::i16:
      return columns_of_type<int16_t>(largest);
    case DType::i8:
      return columns_of_type<int8_t>(largest);
    default:
      return columns_of_type<uint8_t>(largest);
  }
}

}  // namespace strata::STRATA_VEC_NS
