// Functions of vectors of doubles for one processor level, about one unit in the last place off where it has a fused
// multiply-add. No include guard: see levels_inl.h. Polynomials are interpolated at Chebyshev nodes, the highest power
// first; their errors stand beside them. Splittings of constants: the first part has few bits, so that its product with
// a whole number is exact.

namespace strata::STRATA_VEC_NS {

typedef int64_t VL __attribute__((vector_size(kVecBytes)));
typedef uint64_t VLU __attribute__((vector_size(kVecBytes)));

constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
constexpr double kLog2OfE = 1.4426950408889634, kLn2 = 0.69314718055994531;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN(), kLeastNormal = 2.2250738585072014e-308;

template <int N>
STRATA_INLINE VD polynomial(VD x, const double (&c)[N]) {
  VD p = set1(c[0]);
#pragma GCC unroll 40
  for (int i = 1; i < N; ++i) p = fma(p, x, set1(c[i]));
  return p;
}
STRATA_INLINE VD absolute(VD x) {
  return bits<VD>(bits<VLU>(x) & 0x7fffffffffffffffu);
}
STRATA_INLINE VD with_sign_of(VD magnitude, VD sign) {
  return bits<VD>((bits<VLU>(magnitude) & 0x7fffffffffffffffu) | (bits<VLU>(sign) & 0x8000000000000000u));
}
STRATA_INLINE VD square_root(VD x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_sqrt_pd(x);
#elif STRATA_VEC_LEVEL == 1
  return _mm256_sqrt_pd(x);
#else
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::sqrt(x[i]);
  return x;
#endif
}
STRATA_INLINE VD nearest(VD x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif STRATA_VEC_LEVEL == 1
  return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::nearbyint(x[i]);
  return x;
#endif
}
STRATA_INLINE VD truncated(VD x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#elif STRATA_VEC_LEVEL == 1
  return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::trunc(x[i]);
  return x;
#endif
}
STRATA_INLINE bool any_lane(VL mask) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif STRATA_VEC_LEVEL == 1
  return _mm256_movemask_pd((__m256d)mask) != 0;
#else
  int64_t any = 0;
  for (int i = 0; i < kLanes<double>; ++i) any |= mask[i];
  return any != 0;
#endif
}
// The lanes of `hard` one by one through the library's function.
STRATA_INLINE VD replace_hard(VD y, VD x, VL hard, double (*f)(double)) {
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kLanes<double>; ++i)
      if (hard[i]) y[i] = f(x[i]);
  return y;
}

// ---- exponentials --------------------------------------------------------------------------------------------------

// e^x - 1; the sum of 2^n (e^r - 1) and 2^n - 1.
STRATA_INLINE VD expm1_of(VD x) {
  const VD v = x < -50.0 ? set1(-50.0) : (x > 709.0 ? set1(709.0) : x);
  const DoubleExpRest e = exp_rest(v);
  const VD scale = power_of_two(e.n);
  VD y = fma(scale, e.r + fma(e.r * e.r, e.p, e.low), scale - 1.0);
  y = with_sign_of(y, x);
  if (any_lane(x > 709.0)) [[unlikely]]
    y = x > 709.0 ? exp(x) : y;
  return x != x ? x : y;
}
// tanh |x| = m / (m + 2), m = e^(2|x|) - 1; 1 from |x| = 20 on.
STRATA_INLINE VD tanh_of(VD x) {
  const VD a = absolute(x), v = a > 20.0 ? set1(40.0) : a + a;
  const DoubleExpRest e = exp_rest(v);
  const VD scale = power_of_two(e.n);
  const VD m = fma(scale, e.r + fma(e.r * e.r, e.p, e.low), scale - 1.0);
  return x != x ? x : with_sign_of(m / (m + 2.0), x);
}
// 1 / (1 + e^-x), by exponentials of negative numbers only: no overflow, and full accuracy on both sides.
STRATA_INLINE VD logistic_of(VD x) {
  const VD e = exp(-absolute(x));
  return (x < 0.0 ? e : set1(1.0)) / (1.0 + e);
}

// ---- logarithms ----------------------------------------------------------------------------------------------------

// A positive normal number as 2^exponent (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], and with s = f / (2 + f)
// log(1 + f) = f - half_square + s (half_square + rest).
struct DoubleLogParts {
  VD exponent, f, s, half_square, rest;
};
STRATA_INLINE DoubleLogParts log_parts(VD x) {
  const VLU u = bits<VLU>(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  // The biased exponent (of a positive number) beside the bits of 2^52.
  const VD exponent = bits<VD>((u >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
  const VD f = bits<VD>((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  const VD s = f / (2.0 + f), z = s * s;
  // (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2: 2e-18
  static constexpr double c[] = {0.13086767009948175, 0.13268759668560612, 0.15386240205813478, 0.18181795630884753,
                                 0.2222222239180047,  0.28571428570803231, 0.40000000000000879, 0.66666666666666663};
  return {exponent, f, s, 0.5 * f * f, z * polynomial(z, c)};
}
// The logarithm of what `parts` stand for, and of 1 + `low` times that, low being tiny.
STRATA_INLINE VD log_of_parts(const DoubleLogParts& p, VD low) {
  const VD tail = fma(p.s, p.half_square + p.rest, fma(p.exponent, set1(kLn2Low), low));
  return p.exponent * kLn2High - ((p.half_square - tail) - p.f);
}
// The values of a logarithm that no formula gives.
STRATA_INLINE VD log_special(VD x, VD y) {
  y = x == kInfinity ? x : y;
  y = x == 0.0 ? set1(-kInfinity) : y;
  return x < 0.0 ? set1(kNotANumber) : (x != x ? x : y);
}
// Subnormal numbers have no exponent: they are made larger, and `taken` from it.
struct NormalPart {
  VD x, taken;
};
STRATA_INLINE NormalPart normal_part(VD x) {
  const auto tiny = x < kLeastNormal;
  return {tiny ? x * 18014398509481984.0 : x, tiny ? set1(54.0) : VD{}};
}
STRATA_INLINE VD log_of(VD x) {
  const NormalPart n = normal_part(x);
  DoubleLogParts p = log_parts(n.x);
  p.exponent = p.exponent - n.taken;
  return log_special(x, log_of_parts(p, VD{}));
}
// Of base b, with 1 / log(b) and the power of two's logarithm in two parts.
STRATA_INLINE VD log_of_base(VD x, double scale_high, double scale_low, double two_high, double two_low) {
  const NormalPart n = normal_part(x);
  const DoubleLogParts p = log_parts(n.x);
  const VD k = p.exponent - n.taken;
  const VD high = p.f - p.half_square;
  const VD low = ((p.f - high) - p.half_square - fma(0.5 * p.f, p.f, -p.half_square)) + p.s * (p.half_square + p.rest);
  const VD y = high * scale_high, whole = k * two_high;
  const VD rest = fma(k, set1(two_low), fma(high, set1(scale_high), -y) + fma(high, set1(scale_low), low * scale_high));
  const VD sum = whole + y;
  return log_special(x, sum + (((whole - sum) + y) + rest));
}
STRATA_INLINE VD log2_of(VD x) {
  return log_of_base(x, kLog2OfE, 2.0355273740931033e-17, 1.0, 0.0);
}
STRATA_INLINE VD log10_of(VD x) {
  return log_of_base(x, 0.43429448190325182, 1.098319650216765e-17, 3.01029995663611771306e-01,
                     3.69423907715893078616e-13);
}
// log(1 + x) for x > -1, finite: what rounding takes from 1 + x is made good by the derivative.
STRATA_INLINE VD log1p_inside(VD x) {
  const VD u = 1.0 + x, lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
  return with_sign_of(log_of_parts(log_parts(u), lost / u), x);
}
STRATA_INLINE VD log1p_of(VD x) {
  const VD y = x == kInfinity ? x : (x == -1.0 ? set1(-kInfinity) : log1p_inside(x));
  return x < -1.0 ? set1(kNotANumber) : (x != x ? x : y);
}
STRATA_INLINE VD softplus_of(VD x) {
  return (x > 0.0 ? x : VD{}) + log1p_inside(exp(-absolute(x))) + (x != x ? x : VD{});
}

// To the digits of f32 and some more, for normal positive a.
STRATA_INLINE VD log2_in_double(VD a) {
  const VLU u = bits<VLU>(a);
  const VL e = bits<VL>(u - 0x3fe6a09e667f3bcdu) >> 52;
  const VD m = bits<VD>(u - (bits<VLU>(e) << 52));
  const VD s = (m - 1.0) / (m + 1.0), z = s * s;
  // log2((1 + s) / (1 - s)) / s in s^2: 4e-12
  static constexpr double c[] = {0.34071259025868006, 0.41167373768164617, 0.57708356646411663, 0.96179667344923825,
                                 2.8853900817899887};
  return fma(polynomial(z, c), s, bits<VD>(e + 0x4338000000000000) - set1(kToInteger));
}

}  // namespace strata::STRATA_VEC_NS
