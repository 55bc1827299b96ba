// More vectorised f32 kernels of the elementwise functions, for one processor level: what simd_inl.h, which includes
// this, has no room for. Polynomials are interpolated at Chebyshev nodes; their relative errors stand beside them.

namespace strata::STRATA_VEC_NS {

// ---- quotients -----------------------------------------------------------------------------------------------------

STRATA_INLINE VI differ_in_sign(VF a, VF b) {
  return (bits<VI>(a) ^ bits<VI>(b)) < 0;
}
// The remainder of truncated division, exact: a - q b with the truncated quotient has few enough bits for that, also
// where the division's rounding made q one too large.
STRATA_INLINE VF trunc_remainder_of(VF a, VF b) {
#if STRATA_VEC_LEVEL >= 1
  const VF quotient = a / b, q = truncated(quotient);
  VF r = q == 0.f ? a : fma(-q, b, a);
  const VF once = r + with_sign_of(b, a);
  r = r == 0.f ? r : (differ_in_sign(r, a) ? once : r);
  r = with_sign_of(r, a);
  const auto hard = !(absolute(quotient) < 8388608.f);
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kW; ++i)
      if (hard[i]) r[i] = std::fmod(a[i], b[i]);
  return r;
#else
  for (int i = 0; i < kW; ++i) a[i] = std::fmod(a[i], b[i]);
  return a;
#endif
}
// What the scalar functions (functions_inl.h) do with the remainder, operation by operation.
STRATA_INLINE VF floor_remainder_of(VF a, VF b) {
  const VF r = trunc_remainder_of(a, b);
  const VF other = r + b;
  return r == 0.f ? r : (differ_in_sign(r, b) ? other : r);
}
STRATA_INLINE VF floor_quotient_of(VF a, VF b) {
  const VF mod = trunc_remainder_of(a, b), whole = a / b;
  VF q = (a - mod) / b;
  const VF below = q - 1.f;
  q = mod == 0.f ? q : (differ_in_sign(mod, b) ? below : q);
  const VF t = truncated(q), f = t > q ? t - 1.f : t;
  const VF nearer = q - f > 0.5f ? f + 1.f : f;
  return b == 0.f ? whole : (q == 0.f ? with_sign_of(VF{}, whole) : nearer);
}

// ---- trigonometry --------------------------------------------------------------------------------------------------

// The quotient of sine's and cosine's polynomials; the reduction is exact enough for a quotient up to |x| = 200.
STRATA_INLINE VF tan_of(VF x) {
  const VF n = nearest(x * 0.636619772367581343f);
  VF r = fma(n, set1(-1.5703125f), x);
  r = fma(n, set1(-4.837512969970703125e-4f), r);
  r = fma(n, set1(-7.549789948768648e-8f), r);
  const VF z = r * r;
  static constexpr float s[] = {2.72499258e-06f, -0.000198400867f, 0.00833333187f, -0.166666667f};
  static constexpr float c[] = {2.45479417e-05f, -0.0013888303f, 0.0416666647f};
  const VF sin_r = fma(r * z, polynomial(z, s), r);
  const VF cos_r = fma(z * z, polynomial(z, c), fma(z, set1(-0.5f), set1(1.f)));
  const VI q = __builtin_convertvector(n, VI);
  const auto odd = (q & 1) != 0;
  const VF y = (odd ? -cos_r : sin_r) / (odd ? sin_r : cos_r);
  return replace_hard(r == 0.f ? x : y, x, !(absolute(x) <= 200.f), ::tanf);
}
// atan(t) for 0 <= t <= 1
STRATA_INLINE VF atan_unit(VF t) {
  // (atan(t) / t - 1) / t^2 in t^2: 3e-8
  static constexpr float c[] = {0.00148869185f, -0.0091446293f, 0.0263050001f, -0.0489605129f, 0.0703191417f,
                                -0.0893182674f, 0.110882616f,   -0.142840038f, 0.199999493f,   -0.333333331f};
  const VF z = t * t;
  return fma(t * z, polynomial(z, c), t);
}
// high + low is the constant; y is subtracted before its last digits are added.
STRATA_INLINE VF half_turn_less(VF y) {
  return (3.14159274f - y) - 8.74227766e-8f;
}
STRATA_INLINE VF quarter_turn_less(VF y) {
  return (1.57079637f - y) - 4.37113883e-8f;
}
STRATA_INLINE VF atan_of(VF x) {
  const VF a = absolute(x);
  const VF y = atan_unit(a > 1.f ? 1.f / a : a);
  return x != x ? x : with_sign_of(a > 1.f ? quarter_turn_less(y) : y, x);
}
STRATA_INLINE VF atan2_of(VF y, VF x) {
  const VF a = absolute(y), b = absolute(x);
  const VF less = a < b ? a : b, more = a < b ? b : a;
  VF t = less / more;
  t = less == more ? (more == 0.f ? VF{} : set1(1.f)) : t;
  VF angle = atan_unit(t);
  angle = a > b ? quarter_turn_less(angle) : angle;
  angle = bits<VI>(x) < 0 ? half_turn_less(angle) : angle;
  angle = with_sign_of(angle, y);
  return x != x ? x : (y != y ? y : angle);
}
// asin(s) for 0 <= s <= 1/2, z = s^2
STRATA_INLINE VF asin_low(VF s, VF z) {
  // (asin(s) / s - 1) / s^2 in s^2: 3e-9
  static constexpr float c[] = {0.0336908487f, 0.0171492372f, 0.031100663f, 0.0445994015f, 0.0750009454f, 0.166666663f};
  return fma(s * z, polynomial(z, c), s);
}
// Beyond 1/2 by the half angle: acos(x) = 2 asin(sqrt((1 - x) / 2)).
STRATA_INLINE VF asin_of(VF x) {
  const VF a = absolute(x);
  const auto high = a > 0.5f;
  const VF z = high ? (1.f - a) * 0.5f : a * a;
  const VF y = asin_low(high ? square_root(z) : a, z);
  return x != x ? x : with_sign_of(high ? quarter_turn_less(y + y) : y, x);
}
STRATA_INLINE VF acos_of(VF x) {
  const VF a = absolute(x);
  const auto high = a > 0.5f;
  const VF z = high ? (1.f - a) * 0.5f : a * a;
  const VF y = asin_low(high ? square_root(z) : a, z);
  return high ? (x < 0.f ? half_turn_less(y + y) : y + y) : quarter_turn_less(with_sign_of(y, x));
}

// ---- hyperbolic functions ------------------------------------------------------------------------------------------

// e^a / 2 for a > 80, where e^a may overflow and its half not.
STRATA_INLINE VF half_exp_large(VF a) {
  const VF w = exp(a * 0.5f);
  return w * 0.5f * w;
}
STRATA_INLINE VF sinh_of(VF x) {
  const VF a = absolute(x);
  const VF m = expm1_below(a > 80.f ? VF{} : a);
  VF y = 0.5f * (m + m / (m + 1.f));
  if (any_lane(a > 80.f)) [[unlikely]]
    y = a > 80.f ? half_exp_large(a) : y;
  return x != x ? x : with_sign_of(y, x);
}
STRATA_INLINE VF cosh_of(VF x) {
  const VF a = absolute(x);
  const VF e = exp(a > 80.f ? VF{} : a);
  VF y = 0.5f * (e + 1.f / e);
  if (any_lane(a > 80.f)) [[unlikely]]
    y = a > 80.f ? half_exp_large(a) : y;
  return x != x ? x : y;
}
// Where squares leave the range, log(2 a).
STRATA_INLINE VF log_twice(VF a) {
  return log_of(a) + 0.693147181f;
}
STRATA_INLINE VF asinh_of(VF x) {
  const VF a = absolute(x);
  const auto large = a > 1e9f;
  const VF b = large ? VF{} : a, b2 = b * b;
  VF y = log1p_of(b + b2 / (1.f + square_root(b2 + 1.f)));
  if (any_lane(large)) [[unlikely]]
    y = large ? log_twice(a) : y;
  return x != x ? x : with_sign_of(y, x);
}
STRATA_INLINE VF acosh_of(VF x) {
  const auto large = x > 1e9f;
  const VF t = large ? VF{} : x - 1.f;
  VF y = log1p_of(t + square_root(t * (t + 2.f)));
  if (any_lane(large)) [[unlikely]]
    y = large ? log_twice(x) : y;
  return x < 1.f ? set1(std::numeric_limits<float>::quiet_NaN()) : (x != x ? x : y);
}
STRATA_INLINE VF atanh_of(VF x) {
  const VF a = absolute(x);
  const VF y = 0.5f * log1p_of((a + a) / (1.f - a));
  return y != y ? y : with_sign_of(y, x);
}

// ---- powers and logarithms -----------------------------------------------------------------------------------------

// 2^y for -1000 <= y <= 1000; as for these bounds beyond them.
STRATA_INLINE VD exp2_in_double(VD y) {
  y = y > 1000.0 ? set1(1000.0) : (y < -1000.0 ? set1(-1000.0) : y);
  const VD n = y + kToInteger, f = y - (n - kToInteger);
  // 2^f, |f| <= 1/2: 6e-11
  static constexpr double c[] = {1.5303699899644103e-05, 0.00015469729234889767, 0.0013333478477891695,
                                 0.0096180256132207473,  0.055504109063197353,   0.24022651213499499,
                                 0.69314718055683477,    0.99999999995956157};
  return bits<VD>(bits<VLU>(polynomial(f, c)) + (bits<VLU>(n) << 52));
}
// 2^(b log2(a)) for normal positive a.
STRATA_INLINE VD power_in_double(VD a, VD b) {
  const VD y = b * log2_in_double(a);
  return exp2_in_double(y > 200.0 ? set1(200.0) : (y < -200.0 ? set1(-200.0) : y));
}
STRATA_INLINE VF power_of(VF a, VF b) {
  const VF size = absolute(a);
  VF result = in_double([](VD x, VD y) { return power_in_double(x, y); }, size, b);
  // A negative number to a whole power has that power's parity; to another power it has none.
  const VF half = b * 0.5f;
  const VF odd = truncated(half) != half ? -result : result;
  const VF negative = truncated(b) == b ? odd : set1(std::numeric_limits<float>::quiet_NaN());
  result = a < 0.f ? negative : result;
  const VI finite = (size <= 3.4028234e38f) & (absolute(b) <= 3.4028234e38f);
  const VI easy = finite & (size >= 1.17549435e-38f);
  if (any_lane(~easy)) [[unlikely]]
    for (int i = 0; i < kW; ++i)
      if (!easy[i]) result[i] = std::pow(a[i], b[i]);
  return result;
}
STRATA_INLINE VF hypot_of(VF a, VF b) {
  a = absolute(a), b = absolute(b);
  const VF less = a < b ? a : b, more = a < b ? b : a;
  const VF t = less / more;
  const VF y = more == 0.f ? less : more * square_root(fma(t, t, set1(1.f)));
  constexpr float inf = std::numeric_limits<float>::infinity();
  return a == inf ? a : (b == inf ? b : y);
}
// Special functions are computed in double. 1 - x is exact there.
STRATA_INLINE VD logit_of(VD x) {
  const VD y = log2_in_double(x / (1.0 - x)) * kLn2;
  const VD inside = x < 1.0 ? y : (x == 1.0 ? set1(kInfinity) : set1(std::numeric_limits<double>::quiet_NaN()));
  return x > 0.0 ? inside : (x == 0.0 ? set1(-kInfinity) : set1(std::numeric_limits<double>::quiet_NaN()));
}
STRATA_INLINE VD limited_logit_of(VD x, double eps) {
  const VD y = logit_of(x);
  if (eps < 0) return y;
  const VD low = logit_of(set1(eps));
  return x < eps ? low : (x > 1.0 - eps ? -low : y);
}
namespace brief {
// log(x / (1 - x)) of numbers of 16 bits, of which 1 - x loses nothing around 1/2 and 1.
STRATA_INLINE VF limited_logit_of(VF x, VF eps) {
  const VF y = log_of(x / (1.f - x)), low = log_of(eps / (1.f - eps));
  return eps < 0.f ? y : (x < eps ? low : (1.f - x < eps ? -low : y));
}
}  // namespace brief

// x = mantissa 2^exponent. What has no bits for an exponent is made larger first.
struct Split {
  VF mantissa, exponent;
};
STRATA_INLINE Split split_of(VF x) {
  const VF a = absolute(x);
  const auto tiny = a < 1.17549435e-38f;
  const VU u = bits<VU>(tiny ? x * 16777216.f : x);
  const VF e = __builtin_convertvector(bits<VI>((u >> 23) & 0xffu) - 126, VF);
  const VF m = bits<VF>((u & 0x807fffffu) | 0x3f000000u);
  const VF above = tiny ? e - 24.f : e;
  // 0, infinities and NaN
  const VF kept = a <= 3.4028234e38f ? (a == 0.f ? x : m) : x;
  return {kept, a <= 3.4028234e38f ? (a == 0.f ? VF{} : above) : VF{}};
}

// where(): the condition is bytes, the others are f32.
static void vec_where(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const float* a = static_cast<const float*>(in[1]);
  const float* b = static_cast<const float*>(in[2]);
  float* y = static_cast<float*>(out);
  const int64_t step[] = {params.step[0], params.step[1], params.step[2]};
  int64_t i = 0;
#if STRATA_VEC_LEVEL >= 1
  for (; i + kW <= n; i += kW, c += kW * step[0], a += kW * step[1], b += kW * step[2]) {
#if STRATA_VEC_LEVEL >= 2
    const __m128i mask = _mm_loadu_si128(reinterpret_cast<const __m128i*>(c));
    store(y + i, _mm512_mask_blend_ps(_mm_test_epi8_mask(mask, mask), load(b), load(a)));
#else
    const __m256i mask = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(c)));
    store(y + i, bits<VI>(mask) != 0 ? load(a) : load(b));
#endif
  }
#endif
  for (; i < n; ++i, c += step[0], a += step[1], b += step[2]) y[i] = *c ? *a : *b;
}

// ---- the table -----------------------------------------------------------------------------------------------------

// 2^e for ldexp of f32. Whole exponents do not pass through 2^e in f32, which may leave the range where the product
// does not.
STRATA_INLINE VD ldexp_factor(VD e) {
  const VD near = e > 400.0 ? set1(400.0) : (e < -400.0 ? set1(-400.0) : e);
  const VD outside = e > 0.0 ? set1(kInfinity) : VD{};
  const auto far = absolute(e) >= 100000.0, whole = truncated(near) == near;
  const VD power = whole ? power_of_two(near) : exp2_in_double(near);
  const VD other = e >= 128.0 ? outside : (e < -150.0 ? VD{} : power);
  return e != e ? e : (far ? outside : (truncated(e) == e ? power : other));
}
struct VecLdexp {
  VF operator()(VF a, VF b) const {
    return in_double([](VD x, VD e) { return x * ldexp_factor(e); }, a, b);
  }
};
static void vec_ldexp(void* out, const void* const* in, int64_t n, const MapParams& params) {
  if (params.step[0] == 0 || params.step[1] != 0) return vec_map<VecLdexp, 2, float>(out, in, n, params);
  // One exponent for all: its power once.
  const float exponent = *static_cast<const float*>(in[1]);
  const VD factor = ldexp_factor(set1(static_cast<double>(exponent)));
  const float* const a = static_cast<const float*>(in[0]);
  float* const y = static_cast<float*>(out);
  if (exponent >= -126.f && exponent <= 127.f &&
      std::trunc(exponent) == exponent) {  // a power that f32 has: the product is rounded once here too
    const VF power = set1(static_cast<float>(factor[0]));
    for_vectors<float>(n, [&](int64_t i, int64_t m) { store_upto(y + i, load_upto(a + i, m, 0) * power, m); });
    return;
  }
  for_vectors<float>(n, [&](int64_t i, int64_t m) {
    store_upto(y + i, in_double([factor](VD x) { return x * factor; }, load_upto(a + i, m, 0)), m);
  });
}

template <class Table>
static void vec_more_rows(Table& t) {
  using C = const VecConstants&;
  t.template row<2>(Map::fmod, [](VF a, VF b) { return trunc_remainder_of(a, b); });
  t.template row<2>(Map::remainder, [](VF a, VF b) { return floor_remainder_of(a, b); });
  t.template row<2>(Map::floor_divide, [](VF a, VF b) { return floor_quotient_of(a, b); });
  t.template row<2>(Map::trunc_divide, [](VF a, VF b) { return truncated(a / b); });
  t.template row<1>(Map::tan, [](VF x) { return tan_of(x); });
  t.template row<1>(Map::atan, [](VF x) { return atan_of(x); });
  t.template row<1>(Map::asin, [](VF x) { return asin_of(x); });
  t.template row<1>(Map::acos, [](VF x) { return acos_of(x); });
  t.template row<2>(Map::atan2, [](VF y, VF x) { return atan2_of(y, x); });
  t.template row<1>(Map::sinh, [](VF x) { return sinh_of(x); });
  t.template row<1>(Map::cosh, [](VF x) { return cosh_of(x); });
  t.template row<1>(Map::asinh, [](VF x) { return asinh_of(x); });
  t.template row<1>(Map::acosh, [](VF x) { return acosh_of(x); });
  t.template row<1>(Map::atanh, [](VF x) { return atanh_of(x); });
  t.template row<2>(Map::pow, [](VF a, VF b) { return power_of(a, b); });
  // Whole exponents that scripts have (the record gives 2, -1 and halves to kernels of their own).
  t.template row<1>(Map::pow_scalar, [](VF x, C c) {
    const float e = c.a[0];
    if (e == 0.f) return set1(1.f);
    if (e == 1.f) return x;
    if (e == 3.f) return x * x * x;
    if (e == 4.f) return (x * x) * (x * x);
    if (e == -2.f) return 1.f / (x * x);
    return power_of(x, c.a);
  });
  t.template row<1>(Map::scalar_pow, [](VF x, C c) {
    if (bits<VI>(c.a)[0] != 0) return power_of(c.a, x);
    constexpr float inf = std::numeric_limits<float>::infinity();
    return x != x ? x : (x > 0.f ? VF{} : (x < 0.f ? set1(inf) : set1(1.f)));  // of base 0
  });
  t.map[static_cast<size_t>(Map::ldexp)] = vec_ldexp;
  t.template row<2>(Map::hypot, [](VF a, VF b) { return hypot_of(a, b); });
  t.template row<2>(Map::logaddexp, [](VF a, VF b) {
    const VF y = (a > b ? a : b) + log1p_unit(exp<false>(-absolute(a - b)));
    return a == b ? a + 0.693147181f : y;  // equal infinities too
  });
  t.template row<2>(Map::logaddexp2, [](VF a, VF b) {
    const VF y = fma(log1p_unit(exp2<6>(-absolute(a - b))), set1(1.44269504088896341f), a > b ? a : b);
    return a == b ? a + 1.f : y;
  });
  t.template row<2>(Map::xlogy, [](VF a, VF b) { return b != b ? b : (a == 0.f ? VF{} : a * log_of(b)); });
  t.template row<2>(Map::xlog1py, [](VF a, VF b) { return b != b ? b : (a == 0.f ? VF{} : a * log1p_of(b)); });
  t.template row<1>(Map::logit, [](VF x, C c) {
    const double eps = c.a[0];
    return in_double([eps](VD v) { return limited_logit_of(v, eps); }, x);
  });
  t.template halves<1>(
      Map::logit, [](VF x, C c) { return brief::limited_logit_of(x, c.a); },
      [](VF x, C c) { return brief::limited_logit_of(x, c.a); });
  t.map[static_cast<size_t>(Map::where)] = vec_where;
  t.template row<2>(Map::copysign, [](VF a, VF b) { return with_sign_of(a, b); });
  t.template half_bits<2>(Map::copysign, [](uint16_t a, uint16_t b) { return (a & 0x7fff) | (b & 0x8000); });
  t.template hot<2>(Map::fmax, [](VF a, VF b) { return a != a ? b : (b != b ? a : (a > b ? a : b)); });
  t.template hot<2>(Map::fmin, [](VF a, VF b) { return a != a ? b : (b != b ? a : (a < b ? a : b)); });
  t.template hot<2>(Map::heaviside, [](VF a, VF b) { return a == 0.f ? b : (a > 0.f ? set1(1.f) : VF{}); });
  t.template hot<1>(Map::sign, [](VF x) { return x != x ? x : (x > 0.f ? set1(1.f) : (x < 0.f ? set1(-1.f) : VF{})); });
  t.template row<1>(Map::frexp_mantissa, [](VF x) { return split_of(x).mantissa; });
  t.template row<1>(Map::frexp_exponent, [](VF x) { return split_of(x).exponent; });
  t.template row<1>(Map::entr, [](VF x) {
    const VF y = x == 0.f ? VF{} : -x * log_of(x);
    return x < 0.f ? set1(-std::numeric_limits<float>::infinity()) : (x != x ? x : y);
  });
  t.template row<1>(Map::nan_to_num, [](VF x, C c) {
    return x != x ? c.a : (x > 3.4028234e38f ? c.b : (x < -3.4028234e38f ? c.c : x));
  });
  t.template row<1>(Map::replace_between, [](VF x, C c) { return x >= c.a ? (x <= c.b ? c.c : x) : x; });
  t.template row<2>(Map::replace_between_backward,
                    [](VF g, VF x, C c) { return x >= c.a ? (x <= c.b ? VF{} : g) : g; });
  t.template hot<1>(Map::softshrink,
                    [](VF x, C c) { return x > c.a ? x - c.a : (x < -c.a ? x + c.a : (x != x ? x : VF{})); });
  t.template hot<2>(Map::prelu, [](VF a, VF b) { return a > 0.f ? a : a * b; });
  t.template row<2>(Map::nextafter, [](VF a, VF b) {
    // The numbers of one sign are in the order of their bits.
    const VU u = bits<VU>(a), one = u | 1;  // unsigned, as -0 less one is no signed number
    const VF least = with_sign_of(bits<VF>(one & 1), b);
    const VI up = (a < b) == (a > 0.f);  // -1 away from 0, 0 towards it
    const VF next = bits<VF>(u - bits<VU>(up) - bits<VU>(up + 1));
    const VF y = a == 0.f ? least : next;
    return a != a ? a : (b != b ? b : (a == b ? b : y));
  });
  t.template row<1>(Map::angle, [](VF x) { return x != x ? x : (x < 0.f ? set1(3.14159265f) : VF{}); });
  t.template hot<1>(Map::hardsigmoid, [](VF x) {
    const VF v = x + 3.f;
    return (v < 0.f ? VF{} : (v > 6.f ? set1(6.f) : v)) / 6.f;
  });
  t.template hot<1>(Map::hardswish, [](VF x) {
    const VF v = x + 3.f;
    return x * (v < 0.f ? VF{} : (v > 6.f ? set1(6.f) : v)) / 6.f;
  });
  t.template row<2>(Map::hardswish_backward,
                    [](VF g, VF x) { return x <= -3.f ? VF{} : (x >= 3.f ? g : g * (x / 3.f + 0.5f)); });
}

}  // namespace strata::STRATA_VEC_NS
