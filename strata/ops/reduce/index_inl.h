// The largest or smallest element of each line or column with its place, for one processor level: plain loops, which
// the compiler makes vectors of. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class C, bool kLargest>
STRATA_INLINE void index_step(C v, int32_t k, C& best, int32_t& place) {
  const bool take = (kLargest ? v > best : v < best) | ((v != v) & (best == best));
  best = take ? v : best;
  place = take ? k : place;
}
// kRows rows, or less well one: of several the compiler makes vectors for integers alone.
template <class C, int kRows, bool kLargest>
STRATA_INLINE void index_rows_of(const C* __restrict__ p, int64_t stride, int32_t k, int32_t n, C* __restrict__ best,
                                 int32_t* __restrict__ place) {
  int32_t j = 0;
  if constexpr (std::is_same_v<C, float>) {
    for (; j + kW <= n; j += kW) {
      VF b = load(best + j);
      VI at;
      __builtin_memcpy(&at, place + j, sizeof at);
      for (int32_t r = 0; r < kRows; ++r) {
        const VF v = load(p + r * stride + j);
        const VI take = (kLargest ? v > b : v < b) | ((v != v) & (b == b));
        b = take ? v : b;
        at = take ? VI{} + (k + r) : at;
      }
      store(best + j, b);
      __builtin_memcpy(place + j, &at, sizeof at);
    }
  }
  if constexpr (std::is_same_v<C, double>) {
    for (int32_t r = 0; r < kRows; ++r) {
      for (int32_t i = 0; i < n; ++i) {
        const C v = p[r * stride + i], b = best[i];
        const int32_t at = place[i];
        const bool take = (kLargest ? v > b : v < b) | ((v != v) & (b == b));
        best[i] = take ? v : b;
        place[i] = take ? k + r : at;
      }
    }
    return;
  }
  for (; j < n; ++j) {
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

// Lines: the best of each block of a line, then the first place of the best block's.
template <class T, bool kLargest>
static void lines_of(const void* x, int64_t lines, int64_t n, void* result, int64_t* place) {
  using C = compute_t<T>;
  constexpr int64_t kBlock = 512, kRow = 64;
  alignas(64) C wide[std::is_same_v<T, C> ? 1 : kBlock];
  const auto block = [&](const T* p, int64_t m) -> const C* {
    if constexpr (std::is_same_v<T, C>) {
      return p;
    } else {
      for_vectors<T>(m, [&](int64_t j, int64_t k) { store_upto<C>(wide + j, load_upto(p + j, k, 0), k); });
      return wide;
    }
  };
  for (int64_t line = 0; line < lines; ++line) {
    const T* p = static_cast<const T*>(x) + line * n;
    C best = static_cast<C>(p[0]);
    int64_t where = 0;
    for (int64_t i = 0; i < n && best == best; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      const C* q = block(p + i, m);
      C most = q[0];
      int32_t nan = 0;
      int64_t j = 0;
      if (m >= kRow) {
        C row[kRow];
        int32_t odd[kRow] = {};
        for (int64_t l = 0; l < kRow; ++l) row[l] = q[l];
        for (; j + kRow <= m; j += kRow) {
          for (int64_t l = 0; l < kRow; ++l) {
            const C v = q[j + l];
            row[l] = (kLargest ? v > row[l] : v < row[l]) ? v : row[l];
            odd[l] |= v != v;
          }
        }
        for (int64_t half = kRow / 2; half > 0; half /= 2)
          for (int64_t l = 0; l < half; ++l) {
            row[l] = (kLargest ? row[l + half] > row[l] : row[l + half] < row[l]) ? row[l + half] : row[l];
            odd[l] |= odd[l + half];
          }
        most = row[0];
        nan = odd[0];
      }
      for (; j < m; ++j) {
        most = (kLargest ? q[j] > most : q[j] < most) ? q[j] : most;
        nan |= q[j] != q[j];
      }
      if (nan) {
        for (j = 0; q[j] == q[j]; ++j) continue;
        best = q[j], where = i;
      } else if (kLargest ? most > best : most < best) {
        best = most, where = i;
      }
    }
    const int64_t m = std::min(kBlock, n - where);
    const C* q = block(p + where, m);
    const auto is_best = [&](C v) { return (v == best) | ((v != v) & (best != best)); };
    int64_t j = 0;
    for (; j + kRow <= m; j += kRow) {
      int32_t found = 0;
      for (int64_t l = 0; l < kRow; ++l) found |= is_best(q[j + l]);
      if (found) break;
    }
    while (!is_best(q[j])) ++j;
    static_cast<C*>(result)[line] = best;
    place[line] = where + j;
  }
}

template <class T>
static IndexLoops loops_of_type(bool largest) {
  return largest ? IndexLoops{lines_of<T, true>, columns_of<T, true>}
                 : IndexLoops{lines_of<T, false>, columns_of<T, false>};
}
static IndexLoops index_loops_of(DType t, bool largest) {
  switch (t) {
    case DType::f64:
      return loops_of_type<double>(largest);
    case DType::f32:
      return loops_of_type<float>(largest);
    case DType::bf16:
      return loops_of_type<BFloat16>(largest);
    case DType::f16:
      return loops_of_type<Half>(largest);
    case DType::i64:
      return loops_of_type<int64_t>(largest);
    case DType::i32:
      return loops_of_type<int32_t>(largest);
    case DType::i16:
      return loops_of_type<int16_t>(largest);
    case DType::i8:
      return loops_of_type<int8_t>(largest);
    default:
      return loops_of_type<uint8_t>(largest);
  }
}

}  // namespace strata::STRATA_VEC_NS
