// Floating reductions along a run and down columns, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <Fold F>
constexpr bool kSums = F != Fold::prod&& F != Fold::max&& F != Fold::min&& F != Fold::max_abs&& F != Fold::min_abs;

template <Fold F, class R>
constexpr R nothing_folded() {
  constexpr R inf = std::numeric_limits<R>::infinity();
  return F == Fold::prod ? R(1) : F == Fold::max ? -inf : F == Fold::min || F == Fold::min_abs ? inf : R(0);
}
// What of an element is accumulated, and how; for vectors and for single numbers.
template <Fold F, class X>
STRATA_INLINE X folded_term(X x, X shift) {
  if constexpr (F == Fold::sum_numbers)
    return x == x ? x : X{};
  else if constexpr (F == Fold::sum_abs || F == Fold::max_abs || F == Fold::min_abs)
    return x < X{} ? -x : x;
  else if constexpr (F == Fold::sum_squares)
    return (x - shift) * (x - shift);
  else if constexpr (F == Fold::count_nonzero)
    return x != X{} ? X{} + 1.f : X{};
  else
    return x;
}
// An extreme of vectors: a where they are equal or either is NaN.
template <Fold F, class X>
STRATA_INLINE X better_of(X a, X b) {
  if constexpr (F == Fold::max || F == Fold::max_abs)
    return max(b, a);
  else
    return min(b, a);
}
template <Fold F, class X>
STRATA_INLINE X fold_two(X a, X b) {
  if constexpr (kSums<F>)
    return a + b;
  else if constexpr (F == Fold::prod)
    return a * b;
  else
    return b != b ? b : better_of<F>(a, b);
}

// Lane i with lane i ^ kHalf.
template <int kHalf, class X, size_t... I>
STRATA_INLINE X lanes_crossed(X v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(I ^ kHalf)...);
}
// kNoNan: the lanes are all numbers, so that an extreme need not look for others.
template <Fold F, class T, bool kNoNan = false, int kHalf = kLanes<T> / 2>
STRATA_INLINE Real<T> fold_lanes(V<T> v) {
  const V<T> other = lanes_crossed<kHalf>(v, std::make_index_sequence<kLanes<T>>{});
  if constexpr (kNoNan)
    v = better_of<F>(v, other);
  else
    v = fold_two<F>(v, other);
  if constexpr (kHalf > 1)
    return fold_lanes<F, T, kNoNan, kHalf / 2>(v);
  else
    return v[0];
}
STRATA_INLINE bool has_nan(VF v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
#else
  return reduce_add(v - v) != 0;
#endif
}
STRATA_INLINE bool has_nan(VD v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q) != 0;
#else
  return reduce_add(v - v) != 0;
#endif
}

// Up to 32 steps of four independent chains. kCareful: NaN wins an extreme; else `sum`, of all elements, is NaN where
// one was met (or infinities of both signs), and the extreme is to be looked for again.
template <Fold F, class T, bool kCareful>
STRATA_INLINE V<T> fold_block(const T* p, int64_t n, V<T> shift, V<T>& sum) {
  using R = Real<T>;
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>, kChains = 4;
  constexpr R kNothing = nothing_folded<F, R>();
  const auto step = [&](Vec a, Vec x) {
    if constexpr (kCareful || kSums<F> || F == Fold::prod) {
      return fold_two<F>(a, x);
    } else {
      return F == Fold::max || F == Fold::max_abs ? max(a, x) : min(a, x);
    }
  };
  Vec a[kChains], all[kChains] = {};
  for (Vec& v : a) v = set1(kNothing);
  int64_t j = 0;
  for (; j + kChains * W <= n; j += kChains * W) {
    for (int c = 0; c < kChains; ++c) {
      const Vec x = folded_term<F>(load(p + j + c * W), shift);
      a[c] = step(a[c], x);
      if constexpr (!kCareful) all[c] += x;
    }
  }
  for (int c = 0; j < n; j += W, ++c) {
    const int64_t left = std::min(W, n - j);
    const Vec x = folded_term<F>(load_upto(p + j, left, R(0)), shift);
    a[c] = step(a[c], keep_first<T>(x, left, kNothing));
    if constexpr (!kCareful) all[c] += keep_first<T>(x, left, R(0));
  }
  if constexpr (!kCareful) sum += (all[0] + all[1]) + (all[2] + all[3]);
  return step(step(a[0], a[1]), step(a[2], a[3]));
}

// Blocks, pairwise: level i of a binary counter holds 2^i of them. Products meet over all lanes first: a lane alone,
// which of periodic numbers has the same again and again, could overflow.
template <Fold F, class T, bool kCareful>
STRATA_INLINE Real<T> fold_line(const T* p, int64_t n, Real<T> less) {
  using R = Real<T>;
  constexpr bool kLanesFirst = F == Fold::prod;
  constexpr int64_t kBlock = (kLanesFirst ? 16 : 32) * 4 * kLanes<T>;
  const V<T> shift = set1(less);
  V<T> sum = {};
  const auto found = [&](V<T> all) {
    if constexpr (!kCareful)
      if (has_nan(sum)) [[unlikely]]
        return fold_line<F, T, true>(p, n, less);
    return fold_lanes<F, T, !kCareful>(all);
  };
  if (n <= kBlock) return found(fold_block<F, T, kCareful>(p, n, shift, sum));
  using Part = std::conditional_t<kLanesFirst, R, V<T>>;
  Part levels[48];
  uint64_t used = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    Part total;
    if constexpr (kLanesFirst)
      total = fold_lanes<F, T>(fold_block<F, T, kCareful>(p + i, std::min(kBlock, n - i), shift, sum));
    else
      total = fold_block<F, T, kCareful>(p + i, std::min(kBlock, n - i), shift, sum);
    int level = 0;
    for (; used >> level & 1; ++level) total = fold_two<F>(levels[level], total);
    levels[level] = total;
    used = (used | (uint64_t{1} << level)) & ~((uint64_t{1} << level) - 1);
  }
  Part total = Part{} + nothing_folded<F, R>();
  for (int level = 0; used >> level; ++level)
    if (used >> level & 1) total = fold_two<F>(levels[level], total);
  if constexpr (kLanesFirst)
    return total;
  else
    return found(total);
}
template <Fold F, class T>
static void fold_lines(const void* x, int64_t lines, int64_t n, const void* shift, void* result) {
  using R = Real<T>;
  constexpr bool kCareful = kSums<F> || F == Fold::prod;
  const T* p = static_cast<const T*>(x);
  const R* less = static_cast<const R*>(shift);
  R* to = static_cast<R*>(result);
  for (int64_t i = 0; i < lines; ++i) to[i] = fold_line<F, T, kCareful>(p + i * n, n, less ? less[i] : R(0));
}

template <Fold F, class T, int kRows, bool kShifted>
STRATA_INLINE void fold_these_rows(const T* p, int64_t stride, int64_t width, const Real<T>* shift, Real<T>* to) {
  using R = Real<T>;
  for_vectors<T>(width, [&](int64_t j, int64_t m) {
    V<T> a = load_upto<R>(to + j, m, R(0));
    const V<T> s = kShifted ? load_upto<R>(shift + j, m, R(0)) : V<T>{};
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) a = fold_two<F>(a, folded_term<F>(load_upto(p + k * stride + j, m, R(0)), s));
    store_upto<R>(to + j, a, m);
  });
}

// Rows of few vectors, whose partial results stay in registers; short ones in several chains, of which none waits for
// the others.
template <Fold F, class T, int kVectors, int kChains, bool kShifted>
STRATA_INLINE void fold_narrow(const T* p, int64_t rows, int64_t stride, int64_t width, const Real<T>* shift,
                               Real<T>* to) {
  using R = Real<T>;
  constexpr int64_t W = kLanes<T>, kSteps = 32;
  const V<T> nothing = set1(nothing_folded<F, R>());
  const auto count = [&](int v) { return v < kVectors / 2 ? W : std::clamp<int64_t>(width - v * W, 0, W); };
  V<T> total[kVectors], s[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) {
    total[v] = load_upto<R>(to + v * W, count(v), R(0));
    if (kShifted) s[v] = load_upto<R>(shift + v * W, count(v), R(0));
  }
  for (int64_t first = 0; first < rows; first += kSteps) {
    const int64_t end = std::min(rows, first + kSteps);
    V<T> a[kChains][kVectors];
    const auto add = [&](int c, int64_t k) {
      for (int v = 0; v < kVectors; ++v)
        a[c][v] = fold_two<F>(a[c][v], folded_term<F>(load_upto(p + k * stride + v * W, count(v), R(0)), s[v]));
    };
    for (auto& chain : a)
      for (V<T>& one : chain) one = nothing;
    int64_t k = first;
    for (; k + kChains <= end; k += kChains)
      for (int c = 0; c < kChains; ++c) add(c, k + c);
    for (; k < end; ++k) add(0, k);
    for (int v = 0; v < kVectors; ++v) {
      for (int half = kChains / 2; half > 0; half /= 2)
        for (int c = 0; c < half; ++c) a[c][v] = fold_two<F>(a[c][v], a[c + half][v]);
      total[v] = fold_two<F>(total[v], a[0][v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) store_upto<R>(to + v * W, total[v], count(v));
}
template <Fold F, class T, bool kShifted>
STRATA_INLINE void fold_narrow_rows(const T* p, int64_t rows, int64_t stride, int64_t width, const Real<T>* shift,
                                    Real<T>* to) {
  constexpr int64_t W = kLanes<T>;
  if (width <= W) return fold_narrow<F, T, 1, 4, kShifted>(p, rows, stride, width, shift, to);
  if (width <= 2 * W) return fold_narrow<F, T, 2, 2, kShifted>(p, rows, stride, width, shift, to);
  fold_narrow<F, T, 4, 1, kShifted>(p, rows, stride, width, shift, to);
}

// Eight rows at a time: each partial result is read and written once for all of them.
template <Fold F, class T, bool kShifted>
STRATA_INLINE void fold_all_rows(const T* p, int64_t rows, int64_t stride, int64_t width, const Real<T>* shift,
                                 Real<T>* to) {
  int64_t k = 0;
  for (; k + 8 <= rows; k += 8) fold_these_rows<F, T, 8, kShifted>(p + k * stride, stride, width, shift, to);
  if (k + 4 <= rows) fold_these_rows<F, T, 4, kShifted>(p + k * stride, stride, width, shift, to), k += 4;
  if (k + 3 == rows) return fold_these_rows<F, T, 3, kShifted>(p + k * stride, stride, width, shift, to);
  for (; k < rows; ++k) fold_these_rows<F, T, 1, kShifted>(p + k * stride, stride, width, shift, to);
}
template <Fold F, class T, bool kNarrowOnes>
static void fold_rows(const void* x, int64_t rows, int64_t stride, int64_t width, const void* shift, void* result) {
  using R = Real<T>;
  const T* p = static_cast<const T*>(x);
  const auto go = [&]<bool kShifted>(std::bool_constant<kShifted>) {
    constexpr auto fold = kNarrowOnes ? fold_narrow_rows<F, T, kShifted> : fold_all_rows<F, T, kShifted>;
    fold(p, rows, stride, width, static_cast<const R*>(shift), static_cast<R*>(result));
  };
  if constexpr (F == Fold::sum_squares)
    if (shift) return go(std::true_type());
  go(std::false_type());
}

// Sums of products; as fold_line() and fold_rows().
template <class T>
static void dot_lines(const void* x, const void* z, int64_t lines, int64_t n, void* result) {
  using Vec = V<T>;
  constexpr int64_t W = kLanes<T>, kChains = 4, kBlock = 32 * kChains * W;
  for (int64_t line = 0; line < lines; ++line) {
    const T *p = static_cast<const T*>(x) + line * n, *q = static_cast<const T*>(z) + line * n;
    Vec levels[48];
    uint64_t used = 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t end = std::min(n, i + kBlock);
      Vec a[kChains] = {};
      int64_t j = i;
      for (; j + kChains * W <= end; j += kChains * W)
        for (int c = 0; c < kChains; ++c) a[c] = fma(load(p + j + c * W), load(q + j + c * W), a[c]);
      for (int c = 0; j < end; j += W, ++c) {
        const int64_t m = std::min(W, end - j);
        a[c] = fma(load_upto(p + j, m, 0), load_upto(q + j, m, 0), a[c]);
      }
      Vec total = (a[0] + a[1]) + (a[2] + a[3]);
      int level = 0;
      for (; used >> level & 1; ++level) total += levels[level];
      levels[level] = total;
      used = (used | (uint64_t{1} << level)) & ~((uint64_t{1} << level) - 1);
    }
    Vec total = {};
    for (int level = 0; used >> level; ++level)
      if (used >> level & 1) total += levels[level];
    static_cast<Real<T>*>(result)[line] = fold_lanes<Fold::sum, T>(total);
  }
}
template <class T, int kRows>
STRATA_INLINE void dot_these_rows(const T* p, const T* q, int64_t stride, int64_t width, Real<T>* to) {
  for_vectors<T>(width, [&](int64_t j, int64_t m) {
    V<T> a = load_upto<Real<T>>(to + j, m, 0);
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k)
      a = fma(load_upto(p + k * stride + j, m, 0), load_upto(q + k * stride + j, m, 0), a);
    store_upto<Real<T>>(to + j, a, m);
  });
}
template <class T>
static void dot_rows(const void* x, const void* z, int64_t rows, int64_t stride, int64_t width, void* result) {
  const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(z);
  Real<T>* to = static_cast<Real<T>*>(result);
  int64_t k = 0;
  for (; k + 4 <= rows; k += 4) dot_these_rows<T, 4>(p + k * stride, q + k * stride, stride, width, to);
  for (; k < rows; ++k) dot_these_rows<T, 1>(p + k * stride, q + k * stride, stride, width, to);
}
static DotLoops dots_of_type(DType t) {
  DotLoops loops;
  dispatch_floating(t, [&](auto of) { loops = {dot_lines<decltype(of)>, dot_rows<decltype(of)>}; });
  return loops;
}

template <Fold F, class T>
static FoldLoops fold_loops_of() {
  return {fold_lines<F, T>, fold_rows<F, T, false>, fold_rows<F, T, true>, 4 * kLanes<T>};
}
template <class T>
static FoldLoops loops_of(Fold f) {
  switch (f) {
    case Fold::sum:
      return fold_loops_of<Fold::sum, T>();
    case Fold::sum_numbers:
      return fold_loops_of<Fold::sum_numbers, T>();
    case Fold::sum_abs:
      return fold_loops_of<Fold::sum_abs, T>();
    case Fold::sum_squares:
      return fold_loops_of<Fold::sum_squares, T>();
    case Fold::count_nonzero:
      return fold_loops_of<Fold::count_nonzero, T>();
    case Fold::prod:
      return fold_loops_of<Fold::prod, T>();
    case Fold::max:
      return fold_loops_of<Fold::max, T>();
    case Fold::min:
      return fold_loops_of<Fold::min, T>();
    case Fold::max_abs:
      return fold_loops_of<Fold::max_abs, T>();
    default:
      return fold_loops_of<Fold::min_abs, T>();
  }
}
static FoldLoops loops_of_type(Fold f, DType t) {
  FoldLoops loops;
  dispatch_floating(t, [&](auto of) { loops = loops_of<decltype(of)>(f); });
  return loops;
}

}  // namespace strata::STRATA_VEC_NS
