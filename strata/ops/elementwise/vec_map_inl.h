// The loops of the vectorised elementwise kernels, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class R>
struct ConstantsOf {
  V<R> a, b, c;
  ConstantsOf(R x, R y, R z) : a(set1(x)), b(set1(y)), c(set1(z)) {}
  explicit ConstantsOf(const MapParams& p)
      : a(set1(p.s[0].to<R>())), b(set1(p.s[1].to<R>())), c(set1(p.s[2].to<R>())) {}
};
using VecConstants = ConstantsOf<float>;
using DoubleConstants = ConstantsOf<double>;

typedef float VFHalf __attribute__((vector_size(kVecBytes / 2)));

// f of x (and more) in double, rounded once.
template <class F, class... X>
STRATA_INLINE VF in_double(F f, X... x) {
  VF y;
  for (int half = 0; half < 2; ++half) {
    const auto widened = [half](VF v) {
      VFHalf h;
      __builtin_memcpy(&h, reinterpret_cast<const char*>(&v) + half * sizeof h, sizeof h);
      return __builtin_convertvector(h, VD);
    };
    const VFHalf h = __builtin_convertvector(f(widened(x)...), VFHalf);
    __builtin_memcpy(reinterpret_cast<char*>(&y) + half * sizeof h, &h, sizeof h);
  }
  return y;
}

template <class F, class Constants, class X, class... More>
STRATA_INLINE X vec_call(const F& f, const Constants& c, X x, More... more) {
  if constexpr (std::is_invocable_v<F, X, More..., const Constants&>)
    return f(x, more..., c);
  else
    return f(x, more...);
}
template <class F, int N, class T>
STRATA_INLINE V<T> vec_at(const F& f, const ConstantsOf<Real<T>>& c, const T* const* in) {
  if constexpr (N == 1)
    return vec_call(f, c, load(in[0]));
  else if constexpr (N == 2)
    return vec_call(f, c, load(in[0]), load(in[1]));
  else
    return vec_call(f, c, load(in[0]), load(in[1]), load(in[2]));
}
// The first k lanes; the others read 1, for which no function is slow.
template <class F, int N, class T>
STRATA_INLINE V<T> vec_some(const F& f, const ConstantsOf<Real<T>>& c, const T* const* in, int64_t k) {
  if constexpr (N == 1)
    return vec_call(f, c, load_n(in[0], k, 1));
  else if constexpr (N == 2)
    return vec_call(f, c, load_n(in[0], k, 1), load_n(in[1], k, 1));
  else
    return vec_call(f, c, load_n(in[0], k, 1), load_n(in[1], k, 1), load_n(in[2], k, 1));
}

// The first vector, or the one `ahead` elements on.
template <class F, int N, class T>
STRATA_INLINE V<T> vec_at(const F& f, const ConstantsOf<Real<T>>& c, const T* const* in, const int64_t* ahead) {
  const T* p[N];
  for (int k = 0; k < N; ++k) p[k] = in[k] + ahead[k];
  return vec_at<F, N>(f, c, p);
}

// One run of n elements, operand k by step[k] elements (or from its one vector where that is 0).
template <class F, int N, class T>
STRATA_INLINE void vec_run(const F& f, const ConstantsOf<Real<T>>& c, T* y, const T** in, const int64_t* step,
                           int64_t n, bool around) {
  constexpr int64_t kStep = kLanes<T>;
  int64_t vector[3];
  for (int k = 0; k < N; ++k) vector[k] = kStep * step[k];
  const auto advance = [&](int64_t by) {
    for (int k = 0; k < N; ++k) in[k] += by * step[k];
  };
  int64_t i = 0;
#if STRATA_VEC_LEVEL >= 2
  if (around && n >= 4 * kStep) {
    const int64_t head = static_cast<int64_t>((64 - reinterpret_cast<uintptr_t>(y) % 64) % 64 / sizeof(T));
    for (; i < head; i += std::min(kStep, head - i)) {
      const int64_t k = std::min(kStep, head - i);
      store_upto(y + i, vec_some<F, N>(f, c, in, k), k);
      advance(k);
    }
    for (; i + 2 * kStep <= n; i += 2 * kStep, advance(2 * kStep)) {
      const V<T> a = vec_at<F, N>(f, c, in), b = vec_at<F, N>(f, c, in, vector);
      stream2(y + i, a, b);
    }
    stream_fence();
  }
#endif
  for (; i + 2 * kStep <= n; i += 2 * kStep, advance(2 * kStep)) {
    const V<T> a = vec_at<F, N>(f, c, in), b = vec_at<F, N>(f, c, in, vector);
    store2(y + i, a, b);
  }
  for (; i + kStep <= n; i += kStep, advance(kStep)) store(y + i, vec_at<F, N>(f, c, in));
  if (i < n) store_n(y + i, vec_some<F, N>(f, c, in, n - i), n - i);
}

template <class F, int N, class T>
static void vec_map(void* out, const void* const* inputs, int64_t n, const MapParams& params) {
  const F f{};
  const ConstantsOf<Real<T>> c(params);
  const T* in[3];
  int64_t step[3];
  for (int k = 0; k < N; ++k) {
    in[k] = static_cast<const T*>(inputs[k]);
    step[k] = params.step[k];
  }
  vec_run<F, N>(f, c, static_cast<T*>(out), in, step, n, params.stream);
}

// Many rows in one call, which else would take as long as a row of a few vectors; operands whose elements lie 0 bytes
// apart are one number a row.
template <class F, int N, class T>
static void vec_map_rows(char* const* p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows,
                         const MapParams& params) {
  const F f{};
  const ConstantsOf<Real<T>> c(params);
  alignas(64) T numbers[N][kLanes<T>];
  int64_t step[3];
  for (int k = 0; k < N; ++k) step[k] = strides[k + 1] == 0 ? 0 : 1;
  for (int64_t row = 0; row < rows; ++row) {
    const T* in[3];
    for (int k = 0; k < N; ++k) {
      in[k] = reinterpret_cast<const T*>(p[k + 1] + row * row_strides[k + 1]);
      if (step[k] != 0) continue;
      store(numbers[k], set1(get(*in[k])));
      in[k] = numbers[k];
    }
    vec_run<F, N>(f, c, reinterpret_cast<T*>(p[0] + row * row_strides[0]), in, step, n, params.stream);
  }
}

}  // namespace strata::STRATA_VEC_NS
