// Vectors of one processor level (see levels_inl.h): natural-width float and double lanes, loads and stores of every
// floating element type, exp, reductions and transposition. Included once per level; no include guard.

#define STRATA_INLINE static inline __attribute__((always_inline))

namespace strata::STRATA_VEC_NS {

#if STRATA_VEC_LEVEL >= 2
constexpr int kVecBytes = 64;
#elif STRATA_VEC_LEVEL == 1
constexpr int kVecBytes = 32;
#else
constexpr int kVecBytes = 16;
#endif

typedef float VF __attribute__((vector_size(kVecBytes)));
typedef int32_t VI __attribute__((vector_size(kVecBytes)));
typedef uint32_t VU __attribute__((vector_size(kVecBytes)));
typedef double VD __attribute__((vector_size(kVecBytes)));

// Arithmetic type of an element type: double for double, else float.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class R>
struct VecOf {
  using type = VF;
};
template <>
struct VecOf<double> {
  using type = VD;
};
// The vector in which elements of type T are computed.
template <class T>
using V = typename VecOf<Real<T>>::type;
template <class T>
constexpr int kLanes = kVecBytes / static_cast<int>(sizeof(Real<T>));
constexpr int kW = kLanes<float>;

STRATA_INLINE VF set1(float v) {
  return VF{} + v;
}
STRATA_INLINE VD set1(double v) {
  return VD{} + v;
}

#if STRATA_VEC_LEVEL >= 2
STRATA_INLINE VF fma(VF a, VF b, VF c) {
  return _mm512_fmadd_ps(a, b, c);
}
STRATA_INLINE VD fma(VD a, VD b, VD c) {
  return _mm512_fmadd_pd(a, b, c);
}
// max and min give b where either is NaN.
STRATA_INLINE VF max(VF a, VF b) {
  return _mm512_max_ps(a, b);
}
STRATA_INLINE VD max(VD a, VD b) {
  return _mm512_max_pd(a, b);
}
STRATA_INLINE VF min(VF a, VF b) {
  return _mm512_min_ps(a, b);
}
STRATA_INLINE VD min(VD a, VD b) {
  return _mm512_min_pd(a, b);
}
#elif STRATA_VEC_LEVEL == 1
STRATA_INLINE VF fma(VF a, VF b, VF c) {
  return _mm256_fmadd_ps(a, b, c);
}
STRATA_INLINE VD fma(VD a, VD b, VD c) {
  return _mm256_fmadd_pd(a, b, c);
}
STRATA_INLINE VF max(VF a, VF b) {
  return _mm256_max_ps(a, b);
}
STRATA_INLINE VD max(VD a, VD b) {
  return _mm256_max_pd(a, b);
}
STRATA_INLINE VF min(VF a, VF b) {
  return _mm256_min_ps(a, b);
}
STRATA_INLINE VD min(VD a, VD b) {
  return _mm256_min_pd(a, b);
}
#else
STRATA_INLINE VF fma(VF a, VF b, VF c) {
  return a * b + c;
}
STRATA_INLINE VD fma(VD a, VD b, VD c) {
  return a * b + c;
}
STRATA_INLINE VF max(VF a, VF b) {
  return a > b ? a : b;
}
STRATA_INLINE VD max(VD a, VD b) {
  return a > b ? a : b;
}
STRATA_INLINE VF min(VF a, VF b) {
  return a < b ? a : b;
}
STRATA_INLINE VD min(VD a, VD b) {
  return a < b ? a : b;
}
#endif

// ---- loads and stores ------------------------------------------------------------------------------------------

template <class To, class From>
STRATA_INLINE To bits(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  __builtin_memcpy(&r, &v, sizeof r);
  return r;
}

STRATA_INLINE VF load(const float* p) {
  VF v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
STRATA_INLINE VD load(const double* p) {
  VD v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
STRATA_INLINE void store(float* p, VF v) {
  __builtin_memcpy(p, &v, sizeof v);
}
STRATA_INLINE void store(double* p, VD v) {
  __builtin_memcpy(p, &v, sizeof v);
}

typedef uint16_t V16 __attribute__((vector_size(kVecBytes / 2)));

STRATA_INLINE VF load(const BFloat16* p) {
  V16 h;
  __builtin_memcpy(&h, p, sizeof h);
#if STRATA_VEC_LEVEL >= 2
  return bits<VF>(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16));
#elif STRATA_VEC_LEVEL == 1
  return bits<VF>(_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16));
#else
  return bits<VF>(__builtin_convertvector(h, VU) << 16);
#endif
}

// Rounds to nearest even, as BFloat16(float); each lane's result is in its low half.
STRATA_INLINE VU bf16_round(VF v) {
  const VU u = bits<VU>(v);
  const VU r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const VU quiet = (u >> 16) | 0x40u;
  return bits<VU>(v != v) ? quiet : r;
}

STRATA_INLINE void store(BFloat16* p, VF v) {
#if STRATA_VEC_LEVEL >= 3
  const __m256bh h = _mm512_cvtneps_pbh(v);
#elif STRATA_VEC_LEVEL == 2
  const __m256i h = _mm512_cvtepi32_epi16((__m512i)bf16_round(v));
#else
  const V16 h = __builtin_convertvector(bf16_round(v), V16);
#endif
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
}

STRATA_INLINE VF load(const Half* p) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif STRATA_VEC_LEVEL == 1
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  VF v;
  for (int i = 0; i < kW; ++i) v[i] = static_cast<float>(p[i]);
  return v;
#endif
}
STRATA_INLINE void store(Half* p, VF v) {
#if STRATA_VEC_LEVEL >= 2
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif STRATA_VEC_LEVEL == 1
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kW; ++i) p[i] = Half(v[i]);
#endif
}

// Stores two vectors side by side: one instruction rounds both to bf16, for less than two single ones.
template <class T>
STRATA_INLINE void store2(T* p, V<T> a, V<T> b) {
#if STRATA_VEC_LEVEL >= 3
  if constexpr (std::is_same_v<T, BFloat16>) {
    const __m512bh h = _mm512_cvtne2ps_pbh(b, a);
    __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
    return;
  }
#endif
  store(p, a);
  store(p + kLanes<T>, b);
}

// The first n < lanes elements; the other lanes get `fill`.
template <class T>
STRATA_INLINE V<T> load_n(const T* p, int64_t n, Real<T> fill) {
#if STRATA_VEC_LEVEL >= 2
  const __mmask16 m = static_cast<__mmask16>((1u << n) - 1);
  if constexpr (std::is_same_v<T, float>) {
    return _mm512_mask_loadu_ps(set1(fill), m, p);
  } else if constexpr (std::is_same_v<T, double>) {
    return _mm512_mask_loadu_pd(set1(fill), static_cast<__mmask8>(m), p);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const __m512i w = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16);
    return _mm512_mask_mov_ps(set1(fill), m, _mm512_castsi512_ps(w));
  } else {
    return _mm512_mask_mov_ps(set1(fill), m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p)));
  }
#else
  T t[kLanes<T>];
  for (int i = 0; i < kLanes<T>; ++i) t[i] = T(fill);
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
#endif
}
template <class T>
STRATA_INLINE void store_n(T* p, V<T> v, int64_t n) {
#if STRATA_VEC_LEVEL >= 2
  const __mmask16 m = static_cast<__mmask16>((1u << n) - 1);
  if constexpr (std::is_same_v<T, float>) {
    _mm512_mask_storeu_ps(p, m, v);
    return;
  } else if constexpr (std::is_same_v<T, double>) {
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>(m), v);
    return;
  }
#endif
  T t[kLanes<T>];
  store(t, v);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}

// Stores that bypass the caches, for results larger than these; p is aligned to the bytes stored. Call stream_fence()
// on the same thread before others may read.
template <class T>
STRATA_INLINE void stream(T* p, V<T> v) {
#if STRATA_VEC_LEVEL >= 2
  if constexpr (std::is_same_v<T, float>) {
    _mm512_stream_ps(p, v);
  } else if constexpr (std::is_same_v<T, double>) {
    _mm512_stream_pd(p, v);
  } else {
    alignas(32) T t[kW];
    store(t, v);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), _mm256_load_si256(reinterpret_cast<const __m256i*>(t)));
  }
#else
  store(p, v);
#endif
}
// Two vectors side by side; p is aligned to 64 bytes, so that 2-byte elements fill whole lines.
template <class T>
STRATA_INLINE void stream2(T* p, V<T> a, V<T> b) {
#if STRATA_VEC_LEVEL >= 2
  if constexpr (sizeof(T) == 2) {
    alignas(64) T t[2 * kW];
    store2(t, a, b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), _mm512_load_si512(t));
    return;
  }
#endif
  stream(p, a);
  stream(p + kLanes<T>, b);
}
STRATA_INLINE void stream_fence() {
#if STRATA_VEC_LEVEL >= 2
  _mm_sfence();
#endif
}
// Whether a result of rows of n elements should be streamed.
template <class T>
STRATA_INLINE bool should_stream(const T* p, int64_t rows, int64_t n) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  return STRATA_VEC_LEVEL >= 2 && rows * n * static_cast<int64_t>(sizeof(T)) >= kBytes &&
         n * static_cast<int64_t>(sizeof(T)) % 64 == 0 && reinterpret_cast<uintptr_t>(p) % 64 == 0;
}

// Element i of p as the arithmetic type, and back.
template <class T>
STRATA_INLINE Real<T> get(const T& v) {
  return static_cast<Real<T>>(v);
}
template <class T>
STRATA_INLINE void put(T& to, Real<T> v) {
  to = T(v);
}

// Calls f with a value of the C++ type of a floating dtype.
template <class F>
STRATA_INLINE void dispatch_floating(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      f(double{});
      break;
    case DType::f32:
      f(float{});
      break;
    case DType::bf16:
      f(BFloat16{});
      break;
    default:
      f(Half{});
      break;
  }
}

// Runs body(offset, lanes_used) over n elements in vectors of T; the last call may use fewer lanes.
template <class T, class F>
STRATA_INLINE void for_vectors(int64_t n, F&& body) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, static_cast<int64_t>(kLanes<T>));
  if (i < n) body(i, n - i);
}
template <class T>
STRATA_INLINE V<T> load_upto(const T* p, int64_t n, Real<T> fill) {
  return n == kLanes<T> ? load(p) : load_n(p, n, fill);
}
template <class T>
STRATA_INLINE void store_upto(T* p, V<T> v, int64_t n) {
  if (n == kLanes<T>)
    store(p, v);
  else
    store_n(p, v, n);
}
// v with the lanes from n on replaced by fill.
template <class T>
STRATA_INLINE V<T> keep_first(V<T> v, int64_t n, Real<T> fill) {
  if (n == kLanes<T>) return v;
#if STRATA_VEC_LEVEL >= 2
  if constexpr (std::is_same_v<Real<T>, float>)
    return _mm512_mask_mov_ps(set1(fill), static_cast<__mmask16>((1u << n) - 1), v);
  else
    return _mm512_mask_mov_pd(set1(fill), static_cast<__mmask8>((1u << n) - 1), v);
#else
  for (int i = static_cast<int>(n); i < kLanes<T>; ++i) v[i] = fill;
  return v;
#endif
}

// Fetches what two vectors from p on take into the second-level cache; p may lie past the end of its array.
template <class T>
STRATA_INLINE void prefetch2(const T* p) {
  __builtin_prefetch(p, 0, 2);
  if constexpr (2 * kLanes<T> * sizeof(T) > 64) __builtin_prefetch(p + kLanes<T>, 0, 2);
}

// y[i...] = value(i, lanes used) for a row of n elements, around the caches with `nt` (see should_stream). before(i) is
// called once for every two vectors: a place to prefetch the next row, whose reading would else wait for the whole of
// this row's arithmetic.
template <class T, class Before, class F>
STRATA_INLINE void write_row(T* y, int64_t n, bool nt, Before&& before, F&& value) {
  constexpr int64_t W = kLanes<T>;
  int64_t i = 0;
  if (nt) {
    for (; i + 2 * W <= n; i += 2 * W) {
      before(i);
      const V<T> a = value(i, W), b = value(i + W, W);
      stream2(y + i, a, b);
    }
    if (i < n) stream(y + i, value(i, W));
    return;
  }
  for (; i + 2 * W <= n; i += 2 * W) {
    before(i);
    const V<T> a = value(i, W), b = value(i + W, W);
    store2(y + i, a, b);
  }
  for (; i < n; i += W) {
    const int64_t k = std::min<int64_t>(W, n - i);
    store_upto(y + i, value(i, k), k);
  }
}

// ---- reductions over lanes: a fixed tree, equal on every level of one width -------------------------------------

STRATA_INLINE float reduce_add(VF v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_reduce_add_ps(v);
#else
  float t[kW];
  store(t, v);
  for (int s = kW / 2; s > 0; s /= 2)
    for (int i = 0; i < s; ++i) t[i] += t[i + s];
  return t[0];
#endif
}
STRATA_INLINE double reduce_add(VD v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_reduce_add_pd(v);
#else
  double s = v[0];
  for (int i = 1; i < kLanes<double>; ++i) s += v[i];
  return s;
#endif
}
STRATA_INLINE float reduce_max(VF v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_reduce_max_ps(v);
#else
  float m = v[0];
  for (int i = 1; i < kW; ++i) m = m > v[i] ? m : v[i];
  return m;
#endif
}
STRATA_INLINE double reduce_max(VD v) {
  double m = v[0];
  for (int i = 1; i < kLanes<double>; ++i) m = m > v[i] ? m : v[i];
  return m;
}

// ---- exponentials ----------------------------------------------------------------------------------------------
// 2^x = 2^n * p(x - n), n the integer below x, p the minimax polynomial on [0, 1] of relative error 7.5e-5 (degree 3),
// 2.9e-6 (4), 8.3e-8 (5) or 1.9e-9 (6); from degree 4 on with p(0) = 1. Right for every x: results overflow to infinity
// and underflow over the subnormal numbers to 0 as they should, 2^-inf is 0, NaN stays NaN.

#if STRATA_VEC_LEVEL < 2
// p * 2^n for whole n in [-252, 254], in two steps, since 2^n alone may be no normal number.
STRATA_INLINE VF scale_by_power(VF p, VF n) {
  const VI e = __builtin_convertvector(n, VI), half = e >> 1;
  return p * bits<VF>((half + 127) << 23) * bits<VF>((e - half + 127) << 23);
}
STRATA_INLINE VF clamp_to(VF x, float low, float high) {  // NaN stays
  x = x < low ? set1(low) : x;
  return x > high ? set1(high) : x;
}
#endif

template <int kDegree = 5>
STRATA_INLINE VF exp2(VF x) {
  static_assert(kDegree >= 3 && kDegree <= 6);
#if STRATA_VEC_LEVEL >= 2
  // 0 where x is infinite, which leaves the result to the scaling; that rounds its operand down by itself.
  const VF r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  x = clamp_to(x, -160.f, 130.f);
  const VF magic = set1(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
  const VF n = (x - 0.5f + magic) - magic, r = x - n;
#endif
  static constexpr float c3[] = {7.80432001e-2f, 2.26035938e-1f, 6.95848107e-1f, 9.99923587e-1f};
  static constexpr float c4[] = {1.34266848e-2f, 5.22424765e-2f, 2.41280198e-1f, 6.93044841e-1f, 1.f};
  static constexpr float c5[] = {1.86713098e-3f, 9.01702791e-3f, 5.57999164e-2f, 2.40164444e-1f, 6.93151295e-1f, 1.f};
  static constexpr float c6[] = {
      2.17073932e-4f, 1.24380598e-3f, 9.67903808e-3f, 5.54832295e-2f, 2.40229875e-1f, 6.93147004e-1f, 1.f};
  const float* c = kDegree == 3 ? c3 : kDegree == 4 ? c4 : kDegree == 5 ? c5 : c6;
  VF p = set1(c[0]);
#pragma GCC unroll 6
  for (int i = 1; i <= kDegree; ++i) p = fma(p, r, set1(c[i]));
#if STRATA_VEC_LEVEL >= 2
  return _mm512_scalef_ps(p, x);
#else
  return scale_by_power(p, n);
#endif
}

// What e^x is past a power of two: x = n ln2 + r, e^r = 1 + r + p r^2.
struct ExpRest {
  VF r, p;
};
STRATA_INLINE ExpRest exp_rest(VF x, VF n) {
  // ln2 in two parts of which the first has few bits, so that n times it is exact.
  VF r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440054690583e-4f), r);
  VF p = fma(set1(1.383684420918964e-3f), r, set1(8.374817324504786e-3f));
  p = fma(p, r, set1(4.166822568206231e-2f));
  p = fma(p, r, set1(1.666642015185593e-1f));
  p = fma(p, r, set1(4.9999992078951533e-1f));
  return {r, p};
}

// e^x to about 1 ulp in float; kAnySign false: x <= 0 (or NaN), which saves the check for overflow.
template <bool kAnySign = true>
STRATA_INLINE VF exp(VF x) {
  const VF log2e = set1(1.44269504088896341f);
#if STRATA_VEC_LEVEL >= 2
  x = _mm512_max_ps(set1(-110.f), x);
  if constexpr (kAnySign) x = _mm512_min_ps(set1(89.f), x);
  const VF n = _mm512_roundscale_ps(x * log2e, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  x = clamp_to(x, -110.f, 89.f);
  const VF magic = set1(12582912.f);
  const VF n = (x * log2e + magic) - magic;
#endif
  const ExpRest e = exp_rest(x, n);
  const VF p = fma(e.p * e.r, e.r, e.r + 1.f);
#if STRATA_VEC_LEVEL >= 2
  return _mm512_scalef_ps(p, n);
#else
  return scale_by_power(p, n);
#endif
}

// The same of doubles.

constexpr double kToInteger = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, in the low bits

// 2^n for whole n in [-1022, 1023].
STRATA_INLINE VD power_of_two(VD n) {
  typedef uint64_t VLU __attribute__((vector_size(kVecBytes)));
  return bits<VD>((bits<VLU>(n + kToInteger) << 52) + 0x3ff0000000000000u);
}
// p * 2^n for whole n in [-2000, 2000]: in two steps where 2^n alone may be no normal number.
STRATA_INLINE VD scale_by_power(VD p, VD n) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_scalef_pd(p, n);
#else
  const VD half = (n * 0.5 + kToInteger) - kToInteger;
  return p * power_of_two(half) * power_of_two(n - half);
#endif
}
// What e^x is past a power of two: x = n ln2 + r + low, e^r = 1 + r + p r^2.
struct DoubleExpRest {
  VD n, r, low, p;
};
STRATA_INLINE DoubleExpRest exp_rest(VD x) {
  const VD n = fma(x, set1(1.4426950408889634), set1(kToInteger)) - kToInteger;
  // ln2 in two parts of which the first has few bits, so that n times it is exact.
  const VD high = fma(n, set1(-6.93147180369123816490e-01), x);
  const VD r = fma(n, set1(-1.90821492927058770002e-10), high);
  const VD low = fma(n, set1(-1.90821492927058770002e-10), high - r);
  // (e^r - 1 - r) / r^2, |r| <= ln2 / 2, interpolated at Chebyshev nodes: 1e-16
  static constexpr double c[] = {2.5100424157005067e-08, 2.7620138719733994e-07, 2.7557268378684192e-06,
                                 2.4801521190217729e-05, 0.00019841269863105968, 0.0013888888917281794,
                                 0.0083333333333300511,  0.04166666666662399,    0.16666666666666669,
                                 0.50000000000000011};
  VD p = set1(c[0]);
#pragma GCC unroll 9
  for (int i = 1; i < 10; ++i) p = fma(p, r, set1(c[i]));
  return {n, r, low, p};
}
// e^x to about 1 ulp.
STRATA_INLINE VD exp(VD x) {
  x = x < -760.0 ? set1(-760.0) : x;  // NaN stays
  x = x > 720.0 ? set1(720.0) : x;
  const DoubleExpRest e = exp_rest(x);
  return scale_by_power(1.0 + (e.r + fma(e.r * e.r, e.p, e.low)), e.n);
}
// e^(x - shift), at most about 1, as exactly as results of type T can show.
template <class T>
STRATA_INLINE V<T> exp_below(V<T> x, V<T> shift) {
  constexpr float kLog2e = 1.44269504088896341f;
  if constexpr (std::is_same_v<T, double>)
    return exp(x - shift);
  else if constexpr (std::is_same_v<T, float>)
    return exp<false>(x - shift);
  else
    return exp2 < std::is_same_v<T, BFloat16> ? 3 : 4 > ((x - shift) * kLog2e);
}
STRATA_INLINE float exp_scalar(float x) {
  return std::exp(x);
}
STRATA_INLINE double exp_scalar(double x) {
  return std::exp(x);
}

STRATA_INLINE VF sigmoid(VF x) {
  return 1.f / (1.f + exp(-x));
}
STRATA_INLINE VD sigmoid(VD x) {
  return 1. / (1. + exp(-x));
}

// ---- transposition of 32-bit elements ---------------------------------------------------------------------------

#if STRATA_VEC_LEVEL >= 2
STRATA_INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}
#endif

}  // namespace strata::STRATA_VEC_NS
