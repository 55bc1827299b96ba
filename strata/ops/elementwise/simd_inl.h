// Vectorised f32 and bf16 kernels of the elementwise functions, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h. Polynomials are interpolated at Chebyshev nodes; their relative errors stand beside
// them.

#include "strata/ops/vec/functions_inl.h"
#include "strata/ops/vec/logarithm_inl.h"
//
#include "strata/ops/elementwise/vec_map_inl.h"

namespace strata::STRATA_VEC_NS {

// ---- building blocks -----------------------------------------------------------------------------------------------

STRATA_INLINE VF square_root(VF x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_sqrt_ps(x);
#elif STRATA_VEC_LEVEL == 1
  return _mm256_sqrt_ps(x);
#else
  for (int i = 0; i < kW; ++i) x[i] = std::sqrt(x[i]);
  return x;
#endif
}
// Towards zero; floats from 2^23 on, infinities and NaN are whole already.
STRATA_INLINE VF truncated(VF x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
  const VF whole = with_sign_of(__builtin_convertvector(__builtin_convertvector(x, VI), VF), x);
  return absolute(x) < 8388608.f ? whole : x;
#endif
}
STRATA_INLINE bool any_lane(VI mask) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif STRATA_VEC_LEVEL == 1
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  int32_t t[kW];
  __builtin_memcpy(t, &mask, sizeof t);
  int32_t any = 0;
  for (int i = 0; i < kW; ++i) any |= t[i];
  return any != 0;
#endif
}

STRATA_INLINE VF softplus_of(VF x) {
  return (x > 0.f ? x : VF{}) + log1p_unit(exp<false>(-absolute(x))) + (x != x ? x : VF{});
}

// erfc(t) exp(t^2) for t >= 0, as w Q(w) with w = 1 / (1 + 0.5 t): 6e-8
STRATA_INLINE VF erfcx_of(VF t) {
  static constexpr float c[] = {-0.0593381259f, 0.285979672f, -0.490276047f, 0.281742193f, -0.0292310983f,
                                0.203802261f,   0.242824091f, 0.282412613f,  0.282084401f};
  const VF w = 1.f / fma(t, set1(0.5f), set1(1.f));
  return w * polynomial(w, c);
}
STRATA_INLINE VF erfc_positive(VF t) {
  const VF t2 = t * t;
#if STRATA_VEC_LEVEL >= 1
  const VF rest = fma(t, t, -t2);  // what rounding took from t^2
  const VF tail = exp<false>(-t2) * (1.f - rest) * erfcx_of(t);
#else
  const VF tail = exp<false>(-t2) * erfcx_of(t);
#endif
  return t > 11.f ? VF{} : tail;
}
STRATA_INLINE VF erfc_of(VF x) {
  const VF y = erfc_positive(absolute(x));
  return x != x ? x : (x < 0.f ? 2.f - y : y);
}
STRATA_INLINE VF erf_of(VF x) {
  const VF a = absolute(x);
  // erf(x) / x in x^2, |x| <= 0.9: 7e-8
  static constexpr float c[] = {8.52940132e-05f, -0.000817963218f, 0.00520422669f, -0.0268606648f,
                                0.11283718f,     -0.376126352f,    1.12837917f};
  const VF small = x * polynomial(x * x, c);
  return a < 0.9f ? small : (x != x ? x : with_sign_of(1.f - erfc_positive(a), x));
}
// The normal distribution up to x, and e^(-x^2 / 2).
struct Normal {
  VF cdf, bell;
};
STRATA_INLINE Normal normal(VF x) {
  const VF bell = exp<false>(x * x * -0.5f);
  const VF tail = bell * erfcx_of(absolute(x) * 0.70710678118654752f) * 0.5f;
  return {x < 0.f ? tail : 1.f - tail, bell};
}
// gelu's tanh form by 1 + tanh(u) = 2 sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
STRATA_INLINE VF tanh_gelu_gate(VF x) {
  const VF u = x * fma(x * x, set1(-2.f * 0.7978845608f * 0.044715f), set1(-2.f * 0.7978845608f));
  return 1.f / (1.f + exp(u));
}

// The same to the digits that bf16 can show: relative errors below 1e-4, a seventh of its rounding.
namespace brief {
STRATA_INLINE VF reciprocal(VF x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_rcp14_ps(x);
#else
  return 1.f / x;
#endif
}
constexpr float kLog2e = 1.44269504088896341f;
STRATA_INLINE VF exp_of(VF x) {
  return exp2<3>(x * kLog2e);
}
STRATA_INLINE VF sigmoid_of(VF x) {
  return reciprocal(1.f + exp2<3>(x * -kLog2e));
}
// x P(x^2) / Q(x^2) for |x| <= 4, from where on every result rounds to 1: 1.4e-5
STRATA_INLINE VF tanh_of(VF x) {
  x = min(set1(4.f), max(set1(-4.f), x));
  const VF z = x * x;
  static constexpr float p[] = {7.70080253e-4f, 0.105319321f, 0.99998647f}, q[] = {0.0137488292f, 0.438551635f, 1.f};
  return x * polynomial(z, p) * reciprocal(polynomial(z, q));
}
STRATA_INLINE Normal normal(VF x) {
  // erfc(t) exp(t^2) as above with 1 / (1 + 0.45 t): 1e-5
  // Half of it, that is.
  static constexpr float c[] = {-0.06764142f, 0.145287864f, 0.0456599768f, 0.123733079f, 0.125986479f, 0.126969801f};
  const VF bell = exp2<3>(x * x * (-0.5f * kLog2e));
  const VF w = reciprocal(fma(absolute(x), set1(0.45f * 0.70710678118654752f), set1(1.f)));
  const VF tail = bell * w * polynomial(w, c);
  return {x < 0.f ? tail : 1.f - tail, bell};
}
// x P(x^2) for |x| <= 2.8, from where on every result of 16 bits is 1: 1e-5
STRATA_INLINE VF erf_of(VF x) {
  const VF a = min(set1(2.8f), max(set1(-2.8f), x));
  static constexpr float c[] = {-6.31250741e-09f, 2.9555008e-07f, -6.2846002e-06f, 8.15508974e-05f, -0.00073582452f,
                                0.0049901884f,    -0.0265914686f, 0.112668224f,    -0.376084238f,   1.12837732f};
  return a * polynomial(a * a, c);
}
STRATA_INLINE VF tanh_gelu_gate(VF x) {
  constexpr float kScale = -2.f * 0.7978845608f * kLog2e;
  return reciprocal(1.f + exp2<3>(x * fma(x * x, set1(kScale * 0.044715f), set1(kScale))));
}
}  // namespace brief

// The lanes of `hard` one by one through the library's function.
template <class M>
STRATA_INLINE VF replace_hard(VF y, VF x, M hard, float (*f)(float)) {
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kW; ++i)
      if (hard[i]) y[i] = f(x[i]);
  return y;
}
// sin(x + quarter turns * pi/2): reduced to [-pi/4, pi/4] in three steps; lane by lane where x is too large for that.
template <int kQuarters>
STRATA_INLINE VF sine(VF x) {
  const VF n = nearest(x * 0.636619772367581343f);
  VF r = fma(n, set1(-1.5703125f), x);
  r = fma(n, set1(-4.837512969970703125e-4f), r);
  r = fma(n, set1(-7.549789948768648e-8f), r);
  const VF z = r * r;
  static constexpr float s[] = {2.72499258e-06f, -0.000198400867f, 0.00833333187f, -0.166666667f};
  static constexpr float c[] = {2.45479417e-05f, -0.0013888303f, 0.0416666647f};
  const VF sin_r = fma(r * z, polynomial(z, s), r);
  const VF cos_r = fma(z * z, polynomial(z, c), fma(z, set1(-0.5f), set1(1.f)));
  const VI q = __builtin_convertvector(n, VI) + kQuarters;
  const VF y = (q & 1) != 0 ? cos_r : sin_r;
  VF result = bits<VF>(bits<VI>(y) ^ ((q & 2) << 30));
  const auto hard = !(absolute(x) <= 8000.f);
  return replace_hard(result, x, hard, kQuarters ? ::cosf : ::sinf);
}

namespace brief {
// (-1)^n sin(x - n pi), reduced to [-pi/2, pi/2]; for the cosine n is a half less.
template <int kQuarters>
STRATA_INLINE VF sine(VF x) {
  const VF magic = set1(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer, whose parity is in the last bit
  const VF turns = kQuarters ? fma(x, set1(0.318309886f), set1(0.5f)) : x * 0.318309886f;
  const VF m = turns + magic;
  const VF n = kQuarters ? (m - magic) - 0.5f : m - magic;
  VF r = fma(n, set1(-3.140625f), x);
  r = fma(n, set1(-9.67502593994140625e-4f), r);
  r = fma(n, set1(-1.509957990978376e-7f), r);
  const VF z = r * r;
  // sin(r) / r in z, |r| <= pi/2: 1e-6
  static constexpr float s[] = {-1.84881384e-4f, 8.3118994e-3f, -0.16665554f, 0.999999046f};
  const VF y = r * polynomial(z, s);
  const VF result = bits<VF>(bits<VI>(y) ^ (bits<VI>(m) << 31));
  const auto hard = !(absolute(x) <= 8000.f);
  return replace_hard(result, x, hard, kQuarters ? ::cosf : ::sinf);
}
}  // namespace brief

// Derivatives, from what the functions themselves compute.
STRATA_INLINE VF gelu_slope(VF x, Normal d) {
  return fma(x * 0.398942280401432678f, d.bell, d.cdf);
}
STRATA_INLINE VF tanh_gelu_slope(VF x, VF s) {
  const VF du = fma(x * x, set1(2.f * 0.7978845608f * 3.f * 0.044715f), set1(2.f * 0.7978845608f));
  return fma(x * s * (1.f - s), du, s);
}
STRATA_INLINE VF silu_slope(VF x, VF s) {
  return s * fma(x, 1.f - s, set1(1.f));
}

// ---- conversions ---------------------------------------------------------------------------------------------------

template <class T>
static void vec_widen(float* y, const void* x, int64_t n) {
  const T* p = static_cast<const T*>(x);
  int64_t i = 0;
  for (; i + kW <= n; i += kW) store(y + i, load(p + i));
  for (; i < n; ++i) y[i] = static_cast<float>(p[i]);
}
template <class T>
static void vec_narrow(void* y, const float* x, int64_t n) {
  T* p = static_cast<T*>(y);
  int64_t i = 0;
  for (; i + kW <= n; i += kW) store(p + i, load(x + i));
  for (; i < n; ++i) p[i] = T(x[i]);
}

// What a function does to the 16 bits of f16 and bf16 alike, without a way through f32.
template <class F, int N>
static void half_bits_map(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const F f{};
  uint16_t* y = static_cast<uint16_t*>(out);
  const uint16_t* a = static_cast<const uint16_t*>(in[0]);
  if constexpr (N == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint16_t>(f(a[i]));
  } else {
    const uint16_t* b = static_cast<const uint16_t*>(in[1]);
    const uint16_t first = *a, second = *b;
    if (params.step[0] == 0 && params.step[1] == 0) {
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint16_t>(f(first, second));
    } else if (params.step[0] == 0) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint16_t>(f(first, b[i]));
    } else if (params.step[1] == 0) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint16_t>(f(a[i], second));
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<uint16_t>(f(a[i], b[i]));
    }
  }
}

// ---- the table -----------------------------------------------------------------------------------------------------

struct VecTable {
  DenseMap map[static_cast<size_t>(Map::count)] = {};
  DenseMap bf16[static_cast<size_t>(Map::count)] = {}, f16[static_cast<size_t>(Map::count)] = {};
  // Of functions of several operands, many rows at once.
  RowsMap rows[static_cast<size_t>(Map::count)] = {};
  RowsMap bf16_rows[static_cast<size_t>(Map::count)] = {}, f16_rows[static_cast<size_t>(Map::count)] = {};
  Converters convert;
  template <int N, class F>
  void row(Map m, F) {
    map[static_cast<size_t>(m)] = vec_map<F, N, float>;
    if constexpr (N > 1) rows[static_cast<size_t>(m)] = vec_map_rows<F, N, float>;
  }
  // For what networks spend their time on, also without the way through f32 buffers.
  template <int N, class F>
  void hot(Map m, F f) {
    hot<N>(m, f, f);
  }
  template <int N, class F, class G>
  void hot(Map m, F f, G g) {
    row<N>(m, f);
    halves<N>(m, f, g);
  }
  // Of 16 bits alone: f16, then bf16.
  template <int N, class F, class G>
  void halves(Map m, F, G) {
    f16[static_cast<size_t>(m)] = vec_map<F, N, Half>;
    bf16[static_cast<size_t>(m)] = vec_map<G, N, BFloat16>;
    if constexpr (N > 1) {
      f16_rows[static_cast<size_t>(m)] = vec_map_rows<F, N, Half>;
      bf16_rows[static_cast<size_t>(m)] = vec_map_rows<G, N, BFloat16>;
    }
  }
  template <int N, class F>
  void half_bits(Map m, F) {
    f16[static_cast<size_t>(m)] = bf16[static_cast<size_t>(m)] = half_bits_map<F, N>;
  }
};

static void vec_unary_rows(VecTable& t) {
  using C = const VecConstants&;
  t.row<1>(Map::neg, [](VF x) { return -x; });
  t.half_bits<1>(Map::neg, [](uint16_t x) { return x ^ 0x8000; });
  t.row<1>(Map::abs, [](VF x) { return absolute(x); });
  t.half_bits<1>(Map::abs, [](uint16_t x) { return x & 0x7fff; });
  t.hot<1>(Map::square, [](VF x) { return x * x; });
  t.hot<1>(Map::reciprocal, [](VF x) { return 1.f / x; });
  t.hot<1>(Map::sqrt, [](VF x) { return square_root(x); });
  t.hot<1>(Map::rsqrt, [](VF x) { return 1.f / square_root(x); });
  t.hot<1>(
      Map::exp, [](VF x) { return exp(x); }, [](VF x) { return brief::exp_of(x); });
  t.hot<1>(
      Map::exp2, [](VF x) { return exp2<6>(x); }, [](VF x) { return exp2<3>(x); });
  t.row<1>(Map::expm1, [](VF x) { return x > 80.f ? exp(x) : expm1_below(x); });
  t.hot<1>(Map::log, [](VF x) { return log_of(x); });
  t.row<1>(Map::log2, [](VF x) {
    const LogParts l = log_parts(x);
    return log_special(x, fma(l.log_fraction, set1(1.44269504088896341f), l.exponent));
  });
  t.row<1>(Map::log10, [](VF x) {
    const LogParts l = log_parts(x);
    // log10(2) in two parts; the first has few bits, so that its product with the exponent is exact.
    const VF low = fma(l.exponent, set1(4.6050389811952137e-6f), l.log_fraction * 0.434294481903251828f);
    return log_special(x, fma(l.exponent, set1(0.301025390625f), low));
  });
  t.row<1>(Map::log1p, [](VF x) { return log1p_of(x); });
  t.hot<1>(
      Map::sin, [](VF x) { return sine<0>(x); }, [](VF x) { return brief::sine<0>(x); });
  t.hot<1>(
      Map::cos, [](VF x) { return sine<1>(x); }, [](VF x) { return brief::sine<1>(x); });
  t.hot<1>(
      Map::tanh, [](VF x) { return tanh_of(x); }, [](VF x) { return brief::tanh_of(x); });
  t.row<1>(Map::erf, [](VF x) { return erf_of(x); });
  t.halves<1>(
      Map::erf, [](VF x) { return brief::erf_of(x); }, [](VF x) { return brief::erf_of(x); });
  t.row<1>(Map::erfc, [](VF x) { return erfc_of(x); });
  t.hot<1>(Map::trunc, [](VF x) { return truncated(x); });
  t.hot<1>(Map::round, [](VF x) { return nearest(x); });
  t.row<1>(Map::round_decimals, [](VF x, C c) {
    if (c.b[0] != 0) {
      const VF q = nearest(x / c.a);
      return q == 0.f ? q : q * c.a;
    }
    const VF p = x * c.a;
    return absolute(p) <= 3.4028234e38f ? nearest(p) / c.a : x;
  });
  t.hot<1>(Map::frac, [](VF x) { return x - truncated(x); });
  t.hot<1>(Map::floor, [](VF x) {
    const VF w = truncated(x);
    return w > x ? w - 1.f : w;
  });
  t.hot<1>(Map::ceil, [](VF x) {
    const VF w = truncated(x);
    return w < x ? with_sign_of(w + 1.f, x) : w;
  });
  t.hot<1>(Map::add_scalar, [](VF x, C c) { return x + c.a; });
  t.hot<1>(Map::rsub_scalar, [](VF x, C c) { return c.a - x; });
  t.hot<1>(Map::mul_scalar, [](VF x, C c) { return x * c.a; });
  t.hot<1>(Map::div_scalar, [](VF x, C c) { return x / c.a; });
  t.hot<1>(Map::clamp, [](VF x, C c) {
    const VF low = x < c.a ? c.a : x;
    return low > c.b ? c.b : low;
  });
  t.hot<1>(
      Map::sigmoid, [](VF x) { return 1.f / (1.f + exp(-x)); }, [](VF x) { return brief::sigmoid_of(x); });
  t.row<1>(Map::logsigmoid, [](VF x) { return -softplus_of(-x); });
  t.row<1>(Map::softplus, [](VF x, C c) {
    const VF v = x * c.a;
    return v > c.b ? x : softplus_of(v) / c.a;
  });
  t.hot<1>(Map::relu, [](VF x) { return x < 0.f ? VF{} : x; });
  t.hot<1>(Map::leaky_relu, [](VF x, C c) { return x > 0.f ? x : x * c.a; });
  t.row<1>(Map::elu, [](VF x, C c) { return x > 0.f ? x * c.b : c.a * c.b * expm1_below(x > 0.f ? VF{} : x * c.c); });
  t.hot<1>(Map::hardtanh, [](VF x, C c) { return x < c.a ? c.a : (x > c.b ? c.b : x); });
  t.row<1>(Map::mish, [](VF x) {
    // tanh(log(1 + w)) = w (w + 2) / (w (w + 2) + 2), w = e^x
    const VF w = exp(x > 20.f ? set1(20.f) : x), u = w * (w + 2.f);
    return x * (u / (u + 2.f));
  });
  t.hot<1>(
      Map::gelu, [](VF x) { return x * normal(x).cdf; }, [](VF x) { return x * brief::normal(x).cdf; });
  t.hot<1>(
      Map::gelu_tanh, [](VF x) { return x * tanh_gelu_gate(x); }, [](VF x) { return x * brief::tanh_gelu_gate(x); });
  t.hot<1>(
      Map::silu, [](VF x) { return x / (1.f + exp(-x)); }, [](VF x) { return x * brief::sigmoid_of(x); });
}

static void vec_binary_rows(VecTable& t) {
  using C = const VecConstants&;
  t.hot<2>(Map::add, [](VF a, VF b, C c) { return fma(c.a, b, a); });
  t.hot<2>(Map::sub, [](VF a, VF b, C c) { return fma(-c.a, b, a); });
  t.hot<2>(Map::mul, [](VF a, VF b) { return a * b; });
  t.hot<2>(Map::div, [](VF a, VF b) { return a / b; });
  t.hot<2>(Map::maximum, [](VF a, VF b) { return a != a ? a : (a > b ? a : b); });
  t.hot<2>(Map::minimum, [](VF a, VF b) { return a != a ? a : (a < b ? a : b); });
  t.hot<2>(Map::sigmoid_backward, [](VF g, VF y) { return g * y * (1.f - y); });
  t.hot<2>(Map::tanh_backward, [](VF g, VF y) { return g * (1.f - y * y); });
  t.hot<2>(Map::rsqrt_backward, [](VF g, VF y) { return g * y * (y * y) * -0.5f; });
  t.hot<2>(Map::relu_backward, [](VF g, VF y) { return y > 0.f ? g : VF{}; });
  t.hot<2>(Map::leaky_relu_backward, [](VF g, VF x, C c) { return x > 0.f ? g : g * c.a; });
  t.hot<2>(Map::hardtanh_backward, [](VF g, VF x, C c) { return x > c.a ? (x < c.b ? g : VF{}) : VF{}; });
  t.hot<2>(Map::clamp_backward, [](VF g, VF x, C c) { return x >= c.a ? (x <= c.b ? g : VF{}) : VF{}; });
  t.row<2>(Map::elu_backward,
           [](VF g, VF x, C c) { return x > 0.f ? g * c.b : g * (c.a * c.b * c.c * exp(x > 0.f ? VF{} : x * c.c)); });
  t.row<2>(Map::softplus_backward, [](VF g, VF x, C c) {
    const VF v = x * c.a;
    return v > c.b ? g : g / (1.f + exp(-v));
  });
  t.row<2>(Map::mish_backward, [](VF g, VF x) {
    const VF w = exp(x > 20.f ? set1(20.f) : x), u = w * (w + 2.f), t = u / (u + 2.f);
    return g * fma(x * (w / (1.f + w)), 1.f - t * t, t);
  });
  t.hot<2>(
      Map::gelu_backward, [](VF g, VF x) { return g * gelu_slope(x, normal(x)); },
      [](VF g, VF x) { return g * gelu_slope(x, brief::normal(x)); });
  t.hot<2>(
      Map::gelu_tanh_backward, [](VF g, VF x) { return g * tanh_gelu_slope(x, tanh_gelu_gate(x)); },
      [](VF g, VF x) { return g * tanh_gelu_slope(x, brief::tanh_gelu_gate(x)); });
  t.hot<2>(
      Map::silu_backward, [](VF g, VF x) { return g * silu_slope(x, 1.f / (1.f + exp(-x))); },
      [](VF g, VF x) { return g * silu_slope(x, brief::sigmoid_of(x)); });
  t.hot<3>(Map::addcmul, [](VF x, VF a, VF b, C c) { return fma(c.a * a, b, x); });
  t.hot<3>(Map::addcdiv, [](VF x, VF a, VF b, C c) { return fma(c.a, a / b, x); });
  t.hot<3>(Map::lerp, [](VF a, VF b, VF w) {
    const VF d = b - a;
    return w < 0.5f ? fma(w, d, a) : fma(d, w - 1.f, b);
  });
}

}  // namespace strata::STRATA_VEC_NS

#include "strata/ops/elementwise/simd_more_inl.h"
//
#include "strata/ops/elementwise/simd_bessel_inl.h"

namespace strata::STRATA_VEC_NS {

static VecTable vec_make_table() {
  VecTable t;
  vec_unary_rows(t);
  vec_binary_rows(t);
  vec_more_rows(t);
  vec_bessel_rows(t);
  t.convert = {vec_widen<BFloat16>, vec_narrow<BFloat16>, vec_widen<Half>, vec_narrow<Half>};
  return t;
}
static const VecTable& vec_table() {
  static const VecTable table = vec_make_table();
  return table;
}
static DenseMap vec_map_of(Map m, DType t) {
  const VecTable& table = vec_table();
  return (t == DType::bf16 ? table.bf16 : t == DType::f16 ? table.f16 : table.map)[static_cast<size_t>(m)];
}
static RowsMap vec_rows_map_of(Map m, DType t) {
  const VecTable& table = vec_table();
  return (t == DType::bf16 ? table.bf16_rows : t == DType::f16 ? table.f16_rows : table.rows)[static_cast<size_t>(m)];
}
static const Converters& vec_converters() {
  return vec_table().convert;
}

}  // namespace strata::STRATA_VEC_NS
