// The elementwise functions of vectors of doubles, for one processor level with a fused multiply-add: what the rows of
// double_inl.h call. No include guard: see strata/ops/vec/levels_inl.h. Polynomials are interpolated at Chebyshev
// nodes, the highest power first; their errors stand beside them.

namespace strata::STRATA_VEC_NS {

// ---- trigonometry --------------------------------------------------------------------------------------------------

// sin and cos of r + low, x being that and a whole number of quarter turns, |x| <= 2^19.
struct DoubleTurn {
  VD sin, cos;
  VLU quarters;
};
STRATA_INLINE DoubleTurn double_turn(VD x) {
  const VD t = fma(x, set1(0.63661977236758134), set1(kToInteger)), n = t - kToInteger;
  // pi / 2 in three parts, of which the first two have 33 bits.
  const VD a = fma(n, set1(-1.57079632673412561417), x), b = n * 6.07710050630396597660e-11, first = a - b;
  const VD lost = fma(n, set1(-2.02226624879595063154e-21), (a - first) - b);
  const VD r = first + lost, low = (first - r) + lost, z = r * r;
  // (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi / 4: 2e-17, 1e-18
  static constexpr double s[] = {1.5917848524808262e-10,  -2.5051127944014188e-08, 2.7557316083816358e-06,
                                 -0.00019841269836722418, 0.0083333333333309254,   -0.16666666666666666};
  static constexpr double c[] = {-1.1382456778061306e-11, 2.0876143827993133e-09, -2.7557317260008837e-07,
                                 2.480158729874307e-05,   -0.0013888888888887382, 0.041666666666666664};
  const VD half = 0.5 * z, one = 1.0 - half;
  return {r + fma(r * z, polynomial(z, s), low), one + fma(z * z, polynomial(z, c), fma(-r, low, (1.0 - one) - half)),
          bits<VLU>(t)};
}
template <int kQuarters>
STRATA_INLINE VD double_sine(VD x) {
  const DoubleTurn t = double_turn(x);
  const VLU q = t.quarters + kQuarters;
  const VD y = (q & 1) != 0 ? t.cos : t.sin;
  VD result = bits<VD>(bits<VLU>(y) ^ ((q & 2) << 62));
  if constexpr (kQuarters == 0) result = x == 0.0 ? x : result;
  return replace_hard(result, x, !(absolute(x) <= 500000.0), kQuarters ? ::cos : ::sin);
}
STRATA_INLINE VD double_tan(VD x) {
  const DoubleTurn t = double_turn(x);
  const auto odd = (t.quarters & 1) != 0;
  const VD y = (odd ? -t.cos : t.sin) / (odd ? t.sin : t.cos);
  return replace_hard(x == 0.0 ? x : y, x, !(absolute(x) <= 500000.0), ::tan);
}
// sin(pi x)
STRATA_INLINE VD sin_half_turns(VD x) {
  const VD r = x - 2.0 * nearest(x * 0.5), a = absolute(r), part = a > 0.5 ? 1.0 - a : a;
  const DoubleTurn t = double_turn(part * 3.1415926535897932);
  return with_sign_of((t.quarters & 1) != 0 ? t.cos : t.sin, r);
}
// atan(t) for 0 <= t <= 1
STRATA_INLINE VD atan_unit(VD t) {
  // (atan(t) / t - 1) / t^2 in t^2: 3e-17
  static constexpr double c[] = {
      1.8061954618612151e-05, -0.00019996189377901382, 0.0010496035084968515, -0.0034958859739163094,
      0.0083689311784501622,  -0.015535152475414177,   0.023696731580048622,  -0.031277189066996385,
      0.037494868125352472,   -0.042603566326016522,   0.047377495795277787,  -0.052579733342841106,
      0.058815068777936561,   -0.066665646992891042,   0.076922989710332165,  -0.090909085908919343,
      0.11111111093490827,    -0.14285714285384132,    0.19999999999997531,   -0.33333333333333331};
  const VD z = t * t;
  return fma(t * z, polynomial(z, c), t);
}
// high + low is the constant; its last digits are added to what is subtracted.
STRATA_INLINE VD half_turn_less(VD y) {
  return 3.1415926535897931 - (y - 1.2246467991473532e-16);
}
STRATA_INLINE VD quarter_turn_less(VD y) {
  return 1.5707963267948966 - (y - 6.123233995736766e-17);
}
STRATA_INLINE VD double_atan(VD x) {
  const VD a = absolute(x);
  const VD y = atan_unit(a > 1.0 ? 1.0 / a : a);
  return x != x ? x : with_sign_of(a > 1.0 ? quarter_turn_less(y) : y, x);
}
STRATA_INLINE VD double_atan2(VD y, VD x) {
  const VD a = absolute(y), b = absolute(x);
  const VD less = a < b ? a : b, more = a < b ? b : a;
  VD t = less / more;
  t = less == more ? (more == 0.0 ? VD{} : set1(1.0)) : t;
  VD angle = atan_unit(t);
  angle = a > b ? quarter_turn_less(angle) : angle;
  angle = bits<VL>(x) < 0 ? half_turn_less(angle) : angle;
  angle = with_sign_of(angle, y);
  return x != x ? x : (y != y ? y : angle);
}
// asin(s) = s + s * this for 0 <= s <= 1/2, z = s^2
STRATA_INLINE VD asin_rest(VD z) {
  // (asin(s) / s - 1) / s^2 in s^2: 2e-17
  static constexpr double c[] = {
      0.028757851367421566, -0.014851887071247204, 0.017400879442694021, 0.0054575067186403581, 0.010322814350185779,
      0.011479177415184906, 0.013971212973552933,  0.017352392720869973, 0.022372172942149889,  0.030381944138531247,
      0.044642857146355429, 0.074999999999984329,  0.16666666666666669};
  return z * polynomial(z, c);
}
// Beyond 1/2 by the half angle, acos(x) = 2 asin(sqrt((1 - x) / 2)), with what the root's rounding lost.
struct DoubleArc {
  VL high;
  VD y;  // asin |x|, or of the half angle
};
STRATA_INLINE DoubleArc double_arc(VD a) {
  const VL high = a > 0.5;
  const VD z = high ? (1.0 - a) * 0.5 : a * a, s = high ? square_root(z) : a;
  const VD lost = high ? fma(-s, s, z) / (s + s) : VD{};
  return {high, s + fma(s, asin_rest(z), z == 0.0 ? VD{} : lost)};
}
STRATA_INLINE VD double_asin(VD x) {
  const DoubleArc c = double_arc(absolute(x));
  return x != x ? x : with_sign_of(c.high ? quarter_turn_less(c.y + c.y) : c.y, x);
}
STRATA_INLINE VD double_acos(VD x) {
  const DoubleArc c = double_arc(absolute(x));
  const VD y = c.y + c.y;
  return c.high ? (x < 0.0 ? half_turn_less(y) : y) : quarter_turn_less(with_sign_of(c.y, x));
}

// ---- hyperbolic functions ------------------------------------------------------------------------------------------

// e^a / 2 for a > 700, where e^a may overflow and its half not.
STRATA_INLINE VD half_exp_large(VD a) {
  const VD w = exp(a * 0.5);
  return w * 0.5 * w;
}
STRATA_INLINE VD double_sinh(VD x) {
  const VD a = absolute(x);
  const VD m = expm1_of(a > 700.0 ? VD{} : a);
  VD y = 0.5 * (m + m / (m + 1.0));
  if (any_lane(a > 700.0)) [[unlikely]]
    y = a > 700.0 ? half_exp_large(a) : y;
  return x != x ? x : with_sign_of(y, x);
}
STRATA_INLINE VD double_cosh(VD x) {
  const VD a = absolute(x);
  const VD e = exp(a > 700.0 ? VD{} : a);
  VD y = 0.5 * (e + 1.0 / e);
  if (any_lane(a > 700.0)) [[unlikely]]
    y = a > 700.0 ? half_exp_large(a) : y;
  return x != x ? x : y;
}
// Where squares leave the range, log(2 a).
STRATA_INLINE VD double_log_twice(VD a) {
  return log_of(a) + 0.69314718055994531;
}
STRATA_INLINE VD double_asinh(VD x) {
  const VD a = absolute(x);
  const auto large = a > 1e100;
  const VD b = large ? VD{} : a, b2 = b * b;
  VD y = log1p_of(b + b2 / (1.0 + square_root(b2 + 1.0)));
  if (any_lane(large)) [[unlikely]]
    y = large ? double_log_twice(a) : y;
  return x != x ? x : with_sign_of(y, x);
}
STRATA_INLINE VD double_acosh(VD x) {
  const auto large = x > 1e100;
  const VD t = large ? VD{} : x - 1.0;
  VD y = log1p_of(t + square_root(t * (t + 2.0)));
  if (any_lane(large)) [[unlikely]]
    y = large ? double_log_twice(x) : y;
  return x < 1.0 ? set1(kNotANumber) : (x != x ? x : y);
}
STRATA_INLINE VD double_atanh(VD x) {
  const VD a = absolute(x);
  const VD y = 0.5 * log1p_of((a + a) / (1.0 - a));
  return y != y ? y : with_sign_of(y, x);
}

// ---- error functions -----------------------------------------------------------------------------------------------

// erfc(t) exp(t^2) for t >= 0
STRATA_INLINE VD erfcx_positive(VD t) {
  // (1 + 2 t) times it in (t - 3.75) / (t + 3.75): 6e-17
  static constexpr double c[] = {
      3.2052623379289157e-10,  -2.6185201565031449e-09, -3.7981897977362073e-09, 3.1953986120578182e-08,
      2.3398534313040898e-08,  -2.4851108650210706e-07, -5.7410760730139158e-08, 1.7419011945194367e-06,
      -9.733875167494142e-07,  -1.1437980374495534e-05, 2.2384138525656757e-05,  5.164649341002877e-05,
      -0.00029015404203352704, 0.00029371439057885597,  0.0017556258434318641,   -0.0097465796859621708,
      0.028362277420377335,    -0.058693398576310611,   0.09230432116025894,     -0.10880393014246645,
      0.08227673849014977,     0.0035854154854795752,   -0.14024059858554702,    1.2375126308378275};
  const VD v = t > 1e8 ? set1(1e8) : t;
  VD y = polynomial((v - 3.75) / (v + 3.75), c) / fma(v, set1(2.0), set1(1.0));
  if (any_lane(t > 1e8)) [[unlikely]]
    y = t > 1e8 ? 1.0 / t / 1.77245385090551602730 : y;
  return y;
}
// erf(x) / x for |x| <= 1, z = x^2
STRATA_INLINE VD erf_over(VD z) {
  // 2e-21
  static constexpr double c[] = {-4.2309458242953377e-12, 8.7090451290531062e-11,  -1.216456005728345e-09,
                                 1.4792401209404813e-08,  -1.6364642158167616e-07, 1.6462045441468418e-06,
                                 -1.4925647567519332e-05, 0.00012055332902888736,  -0.00085483270219348297,
                                 0.0052239776254232985,   -0.02686617064512984,    0.11283791670955121,
                                 -0.37612638903183754,    1.1283791670955126};
  return polynomial(z, c);
}
// e^(-scale t^2), with the square's rounding made good.
STRATA_INLINE VD exp_of_square(VD t, double scale) {
  const VD square = t * t, rest = fma(t, t, -square);
  const VD e = exp(square * -scale);
  return square < 2000.0 ? fma(e * -scale, rest, e) : VD{};
}
STRATA_INLINE VD double_erf(VD x) {
  const VD a = absolute(x);
  const VD small = x * erf_over(x * x);
  const VD tail = exp_of_square(a, 1.0) * erfcx_positive(a);
  return a < 1.0 ? small : (x != x ? x : with_sign_of(1.0 - tail, x));
}
STRATA_INLINE VD double_erfc(VD x) {
  const VD a = absolute(x);
  const VD tail = exp_of_square(a, 1.0) * erfcx_positive(a);
  const VD y = a < 0.5 ? fma(-x, erf_over(x * x), set1(1.0)) : (x < 0.0 ? 2.0 - tail : tail);
  return x != x ? x : y;
}
// The normal distribution up to x, and e^(-x^2 / 2).
struct DoubleNormal {
  VD cdf, bell;
};
STRATA_INLINE DoubleNormal double_normal(VD x) {
  const VD a = absolute(x), t = x * 0.70710678118654752;
  const VD bell = exp_of_square(a, 0.5), tail = bell * erfcx_positive(absolute(t)) * 0.5;
  const VD inner = fma(0.5 * t, erf_over(t * t), set1(0.5));
  return {a < 0.7 ? inner : (x != x ? x : (x < 0.0 ? tail : 1.0 - tail)), bell};
}
STRATA_INLINE VD double_gelu_slope(VD x) {
  const DoubleNormal n = double_normal(x);
  return fma(x * 0.39894228040143268, n.bell, n.cdf);
}

// gelu's tanh form by 1 + tanh(u) = 2 sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double kGeluScale = 2 * 0.79788456080286535588;
STRATA_INLINE VD double_gelu_gate(VD x) {
  return logistic_of(x * fma(x * x, set1(kGeluScale * 0.044715), set1(kGeluScale)));
}

// ---- powers and quotients ------------------------------------------------------------------------------------------

// b log2(a) for normal positive a, as a sum of two: log(a) = 2 s + 2 s^3 / 3 + ..., the first terms in twice the
// digits.
struct DoublePair {
  VD high, low;
};
STRATA_INLINE DoublePair log2_times(VD a, VD b) {
  const VLU u = bits<VLU>(a) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const VD exponent = bits<VD>((u >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
  const VD m = bits<VD>((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  const VD over = m - 1.0, under = m + 1.0, under_low = m - (under - 1.0), inverse = 1.0 / under;
  const VD s = over * inverse, s_low = fma(-s, under_low, fma(-s, under, over)) * inverse;
  const VD z = s * s, z_low = fma(s + s, s_low, fma(s, s, -z));
  // (log((1 + s) / (1 - s)) / s - 2 - 2 s^2 / 3) / s^4 in s^2: 2e-18
  static constexpr double c[] = {0.11723178623876518, 0.11706236339491206, 0.1333480469384731,  0.1538459496251843,
                                 0.18181818335392802, 0.22222222221655885, 0.28571428571429364, 0.40000000000000002};
  constexpr double two_thirds = 0.66666666666666663, two_thirds_low = 3.7007434154171886e-17;
  const VD g = two_thirds * z;
  const VD g_low = fma(set1(two_thirds), z_low, fma(set1(two_thirds_low), z, fma(set1(two_thirds), z, -g)));
  const VD rest = z * z * polynomial(z, c), t = g + rest, t_low = ((g - t) + rest) + g_low;
  const VD w = 2.0 + t, w_low = ((2.0 - w) + t) + t_low;
  const VD l = s * w, l_low = fma(s, w_low, fma(s_low, w, fma(s, w, -l)));
  const VD p = l * kLog2OfE;
  const VD p_low = fma(l_low, set1(kLog2OfE), fma(l, set1(2.0355273740931033e-17), fma(l, set1(kLog2OfE), -p)));
  const VD v = exponent + p, v_low = ((exponent - v) + p) + p_low;
  const VD y = b * v;
  return {y, fma(b, v_low, fma(b, v, -y))};
}
// 2^(x + low)
STRATA_INLINE VD exp2_of(VD x, VD low) {
  const auto far = absolute(x) > 1100.0;
  x = x > 1100.0 ? set1(1100.0) : (x < -1100.0 ? set1(-1100.0) : x);
  const VD n = nearest(x), r = (x - n) + (far ? VD{} : low);
  // (2^r - 1 - r ln2) / r^2, |r| <= 1/2: 1e-18; r ln2 in twice the digits.
  static constexpr double c[] = {2.572508057683636e-11,  4.4549605981865186e-10, 7.0548999563726488e-09,
                                 1.0178062445845774e-07, 1.3215486802903931e-06, 1.5252733829836119e-05,
                                 0.00015403530393375914, 0.0013333558146416936,  0.0096181291076284786,
                                 0.055504108664821597,   0.24022650695910072};
  constexpr double ln2 = 0.69314718055994531, ln2_low = 2.3190468138462996e-17;
  const VD u = r * ln2, u_low = fma(r, set1(ln2_low), fma(r, set1(ln2), -u));
  return scale_by_power(1.0 + (u + fma(r * r, polynomial(r, c), u_low)), n);
}
STRATA_INLINE VD double_power(VD a, VD b) {
  const VD size = absolute(a);
  const DoublePair y = log2_times(size, b);
  VD result = exp2_of(y.high, y.low);
  // A negative number to a whole power has that power's parity; to another power it has none.
  const VD half = b * 0.5;
  const VD odd = truncated(half) != half ? -result : result;
  const VD negative = truncated(b) == b ? odd : set1(kNotANumber);
  result = a < 0.0 ? negative : result;
  constexpr double most = std::numeric_limits<double>::max();
  const VL easy = (size >= kLeastNormal) & (size <= most) & (absolute(b) <= most);
  if (any_lane(~easy)) [[unlikely]]
    for (int i = 0; i < kLanes<double>; ++i)
      if (!easy[i]) result[i] = std::pow(a[i], b[i]);
  return result;
}
STRATA_INLINE VD double_hypot(VD a, VD b) {
  a = absolute(a), b = absolute(b);
  const VD less = a < b ? a : b, more = a < b ? b : a;
  const VD t = less / more;
  const VD y = more == 0.0 ? less : more * square_root(fma(t, t, set1(1.0)));
  return a == kInfinity ? a : (b == kInfinity ? b : y);
}
STRATA_INLINE VL differ_in_sign(VD a, VD b) {
  return (bits<VL>(a) ^ bits<VL>(b)) < 0;
}
// The remainder of truncated division, exact: a - q b with the truncated quotient has few enough bits for that, also
// where the division's rounding made q one too large.
STRATA_INLINE VD trunc_remainder_of(VD a, VD b) {
  const VD quotient = a / b, q = truncated(quotient);
  VD r = q == 0.0 ? a : fma(-q, b, a);
  const VD once = r + with_sign_of(b, a);
  r = r == 0.0 ? r : (differ_in_sign(r, a) ? once : r);
  r = with_sign_of(r, a);
  const VL hard = ~(VL)(absolute(quotient) < 4503599627370496.0);
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kLanes<double>; ++i)
      if (hard[i]) r[i] = std::fmod(a[i], b[i]);
  return r;
}
// What the scalar functions (functions_inl.h) do with the remainder, operation by operation.
STRATA_INLINE VD floor_remainder_of(VD a, VD b) {
  const VD r = trunc_remainder_of(a, b);
  const VD other = r + b;
  return r == 0.0 ? r : (differ_in_sign(r, b) ? other : r);
}
STRATA_INLINE VD floor_of(VD x) {
  const VD w = truncated(x);
  return w > x ? w - 1.0 : w;
}
STRATA_INLINE VD floor_quotient_of(VD a, VD b) {
  const VD mod = trunc_remainder_of(a, b), whole = a / b;
  VD q = (a - mod) / b;
  const VD below = q - 1.0;
  q = mod == 0.0 ? q : (differ_in_sign(mod, b) ? below : q);
  const VD f = floor_of(q);
  const VD nearer = q - f > 0.5 ? f + 1.0 : f;
  return b == 0.0 ? whole : (q == 0.0 ? with_sign_of(VD{}, whole) : nearer);
}
// log(x / (1 - x)), around 1/2 by the difference from it.
STRATA_INLINE VD double_logit(VD x) {
  const VD rest = 1.0 - x;
  const auto middle = absolute(x - 0.5) <= 0.25;
  const VD v = (x + x - 1.0) / rest, u = middle ? 1.0 + v : x / rest;
  const VD lost = v > 1.0 ? 1.0 - (u - v) : v - (u - 1.0);
  // Below the normal numbers 1 - x is 1.
  const NormalPart n = normal_part(u);
  DoubleLogParts p = log_parts(n.x);
  p.exponent = p.exponent - n.taken;
  const VD y = log_of_parts(p, middle ? lost / u : VD{});
  const VD inside = x < 1.0 ? y : (x == 1.0 ? set1(kInfinity) : set1(kNotANumber));
  return x > 0.0 ? inside : (x == 0.0 ? set1(-kInfinity) : set1(kNotANumber));
}

// x = mantissa 2^exponent. What has no bits for an exponent is made larger first.
struct DoubleSplit {
  VD mantissa, exponent;
};
STRATA_INLINE DoubleSplit split_of(VD x) {
  const VD a = absolute(x);
  const auto tiny = a < kLeastNormal;
  const VLU u = bits<VLU>(tiny ? x * 18014398509481984.0 : x);
  const VD e = bits<VD>(((u >> 52) & 0x7ffu) | 0x4330000000000000u) - (4503599627370496.0 + 1022.0);
  const VD m = bits<VD>((u & 0x800fffffffffffffu) | 0x3fe0000000000000u);
  const VD above = tiny ? e - 54.0 : e;
  constexpr double most = std::numeric_limits<double>::max();
  // 0, infinities and NaN
  const VD kept = a <= most ? (a == 0.0 ? x : m) : x;
  return {kept, a <= most ? (a == 0.0 ? VD{} : above) : VD{}};
}

}  // namespace strata::STRATA_VEC_NS
