// Special functions on vectors of doubles, for one processor level with a fused multiply-add; kernels of f32 round
// their results once. No include guard: see strata/ops/vec/levels_inl.h. Polynomials are interpolated at Chebyshev
// nodes, the highest power first; their relative errors stand beside them. Formulas of the DLMF are named as in
// special_inl.h.

namespace strata::STRATA_VEC_NS {

constexpr double kPiOf = 3.14159265358979323846;

// ---- gamma and its kin ---------------------------------------------------------------------------------------------

// For x > 0: around 2 by lgamma(y) / (y - 2) on [1.5, 2.5], reached by the recurrence, whose factors take one
// logarithm; from 7.5 on DLMF 5.11.1.
STRATA_INLINE VD log_gamma_positive(VD x) {
  // 7e-17
  static constexpr double near_two[] = {
      -1.3219945666117874e-07, 2.7874080521135899e-07, -4.3252393445604814e-07, 9.2005278949681006e-07,
      -2.0439048107029907e-06, 4.3847044045983602e-06, -9.4387150992115318e-06, 2.0505590755833454e-05,
      -4.4926313379155697e-05, 9.9457673558194984e-05, -0.00022315475400520507, 0.00050966951541154583,
      -0.0011927539118428156,  0.0028905103310342671,  -0.0073855510286719986,  0.02058080842778038,
      -0.067352301053198102,   0.32246703342411326,    0.42278433509846713};
  // (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) x in x^-2: 6e-17
  static constexpr double tail[] = {0.10354575172519309,    -0.027337031989354513,  0.0063730149028706521,
                                    -0.0019171511592005939, 0.00084174858226114633, -0.00059523808754106315,
                                    0.00079365079363758471, -0.0027777777777777692, 0.083333333333333329};
  const auto large = x >= 7.5;
  // The factors x - 1, x - 2, ... down to y; below 1.5 x and x + 1, by which the result is less.
  VD y = x, product = set1(1.0);
  for (int k = 0; k < 6; ++k) {
    const auto down = y > 2.5;
    y = down ? y - 1.0 : y;
    product = down ? product * y : product;
  }
  const auto below = x < 1.5, twice = x < 0.5;
  y = below ? (twice ? x + 2.0 : x + 1.0) : y;
  product = below ? (twice ? x * (x + 1.0) : x) : product;
  const VD log_part = log_of(large ? x : product), t = below ? (twice ? x : x - 1.0) : y - 2.0;
  const VD core = t * polynomial(t, near_two);
  const VD small = below ? core - log_part : core + log_part;
  const VD inverse = 1.0 / x;
  const VD stirling =
      fma(x - 0.5, log_part - 1.0, 0.41893853320467274178 + inverse * polynomial(inverse * inverse, tail));
  return large ? stirling : small;
}
STRATA_INLINE VD log_gamma_vector(VD x) {
  const VD a = absolute(x);
  VD y = log_gamma_positive(a);
  const auto mirrored = x < -1e-20;
  if (any_lane(mirrored)) {  // DLMF 5.5.3
    const VD sine = absolute(sin_half_turns(a)), z = 1.1447298858494001741 - log_of(a * sine) - y;
    y = mirrored ? (a >= 4503599627370496.0 ? set1(kInfinity) : z) : y;
  }
  return x != x ? x : y;
}

// On [1, 2] by digamma / (x - its zero), reached by the recurrence; from 10 on DLMF 5.11.2, below 0 5.5.4.
STRATA_INLINE VD digamma_vector(VD x) {
  const auto mirrored = x < 0.0;
  const VD v = mirrored ? 1.0 - x : x;
  const auto large = v >= 10.0, below = v < 1.0;
  // The sum of 1 / (v - 1), 1 / (v - 2), ... down to y, as one fraction.
  VD y = below ? v + 1.0 : v, under = below ? v : set1(1.0), over = below ? set1(-1.0) : VD{};
  for (int k = 0; k < 8; ++k) {
    const auto down = y > 2.0;
    y = down ? y - 1.0 : y;
    over = down ? fma(over, y, under) : over;
    under = down ? under * y : under;
  }
  constexpr double zero = 1.4616321449683622, rest = 9.549995429965697e-17;
  const VD small = fma((y - zero) - rest, polynomial(y - 1.5, GammaFits::digamma_near), over / under);
  const VD inverse = 1.0 / v, square = inverse * inverse;
  const VD tail = polynomial(square, GammaFits::digamma_tail);
  const VD series = log_of(large ? v : set1(1.0)) - fma(square, tail, 0.5 * inverse);
  VD result = large ? series : small;
  if (any_lane(mirrored)) {
    // pi cot(pi x), by the cotangent's or the tangent's side of an eighth of a turn
    const VD r = x - nearest(x), size = absolute(r);
    const auto far = size > 0.25;
    const DoubleTurn turn = double_turn((far ? 0.5 - size : size) * kPiOf);
    const VD cotangent = with_sign_of(kPiOf * (far ? turn.sin : turn.cos) / (far ? turn.cos : turn.sin), r);
    const VD z = size == 0.0 ? set1(kNotANumber) : result - cotangent;
    result = mirrored ? z : result;
  }
  result = x == 0.0 ? with_sign_of(set1(kInfinity), -x) : result;
  return x != x ? x : result;
}

// The derivative of digamma: DLMF 5.15.8 from 8 on, reached by the recurrence; below 0 5.15.6.
STRATA_INLINE VD trigamma_vector(VD x) {
  const auto mirrored = x < 0.5;
  const VD v = mirrored ? 1.0 - x : x;
  VD y = v, sum = VD{};
  for (int k = 0; k < 4; ++k) {
    // Two terms as one fraction.
    const auto up = y < 8.0;
    const VD a = y * y, b = (y + 1.0) * (y + 1.0);
    sum = up ? sum + (a + b) / (a * b) : sum;
    y = up ? y + 2.0 : y;
  }
  const VD inverse = 1.0 / y, square = inverse * inverse;
  const VD tail = polynomial(square, GammaFits::trigamma_tail);
  VD result = sum + fma(inverse, fma(square, tail, set1(1.0)), 0.5 * square);
  if (any_lane(mirrored)) {
    const VD sine = sin_half_turns(x), ratio = kPiOf / sine;
    result = mirrored ? (x == -kInfinity ? set1(kNotANumber) : fma(ratio, ratio, -result)) : result;
  }
  return x != x ? x : result;
}

// ---- error functions and the normal distribution
// ---------------------------------------------------------------------

STRATA_INLINE VD erfcx_vector(VD x) {
  const VD a = absolute(x);
  VD y = erfcx_positive(a);
  if (any_lane(x < 0.0)) {
    const VD square = x * x, rest = fma(x, x, -square), e = exp(square);
    const VD growing = e > 1e300 ? e : fma(e, rest, e);
    y = x < 0.0 ? (a > 27.0 ? set1(kInfinity) : 2.0 * growing - y) : y;
  }
  return x != x ? x : y;
}
STRATA_INLINE VD log_normal_below(VD x) {
  const VD a = absolute(x), e = erfcx_positive(a * 0.70710678118654752) * 0.5;
  const auto tail = x < -1.0;
  const VD upper = double_normal(-x).cdf;  // 1 less what is below
  const VD y = tail ? log_of(e) - 0.5 * (x * x) : log1p_inside(-(tail ? VD{} : upper));
  return x != x ? x : (x == -kInfinity ? x : y);
}
// erfinv(x) / x where -log(1 - x^2) is w; more than 37.4 only for arguments given by their distance from 1.
STRATA_INLINE VD erfinv_over(VD w) {
  // In w - 3.125; then in the root of w, less the middle of where they hold: 1e-16.
  static constexpr double low[] = {
      3.240704459379902e-21,   -1.113483769832702e-21,  -3.4996044354754177e-19, 1.150022252066253e-18,
      1.5574320246233251e-17,  -1.3016928016796445e-16, -4.0282154327661744e-17, 6.5964077124208341e-15,
      -4.0012377350918961e-14, -8.1183994430743526e-14, 2.6304834740560442e-12,  -1.2976885526532075e-11,
      -5.414287198084716e-11,  1.0512181539804126e-09,  -4.1126608200232397e-09, -2.9070382262927266e-08,
      4.2347881737823391e-07,  -1.3654691850603575e-06, -1.3882523394405316e-05, 0.00018673420802464837,
      -0.00074070253415447704, -0.0060336708714278497,  0.24015818242558831,     1.6536545626831027};
  static constexpr double middle[] = {
      -1.5102695423335065e-08, 6.9692419776296945e-10,  1.3104351499972014e-07, -2.7134511054394561e-07,
      -2.7004219280868947e-08, 1.4987130784186127e-06,  -3.986084395214756e-06, 2.9257291901789823e-06,
      1.2465167157087251e-05,  -4.7318984120112452e-05, 6.8287086547533766e-05, 2.4031257015092525e-05,
      -0.00035503780975963814, 0.00095328936374356377,  -0.0016882755357337071, 0.0024914420969817607,
      -0.003751208508215561,   0.0053709145535716799,   1.0052589676941652,     3.0838856104922208};
  static constexpr double high[] = {2.7520836691204935e-11,  9.2511949415911524e-13,  -3.8033252304135697e-10,
                                    1.2063669627543017e-09,  -2.6436500138368222e-09, 5.6299262734725951e-09,
                                    -1.1194623916256623e-08, 2.193600376020932e-08,   -5.4939464203837277e-08,
                                    2.0157555719899256e-07,  -9.0708354710236139e-07, 4.1938630607079807e-06,
                                    -1.8374536573707365e-05, 7.1240314425355993e-05,  -0.00020031200664603828,
                                    -0.00016985809145229853, 1.0102850175977713,      4.9004210514436402};
  static constexpr double far[] = {
      -4.4585755035497528e-20, 4.2441884169817363e-19,  -2.0592334297732653e-18, 1.8830138905060064e-17,
      -2.0603415893642756e-16, 1.8595546962428566e-15,  -1.6199826679076556e-14, 1.4193501647374029e-13,
      -1.223752322331251e-12,  1.0300920496232872e-11,  -8.4171050744823206e-11, 6.593123724305178e-10,
      -4.8271324662552248e-09, 3.1102805308095858e-08,  -1.4226843390260532e-07, -2.7354244911637596e-07,
      2.0504280816280516e-05,  -0.00040585799034279494, 1.0066866251686348,      8.9346058586135744};
  static constexpr double last[] = {
      1.5291694669014288e-30,  -2.9165022631733722e-29, 2.4932701526588853e-29,  -3.4512528021819298e-28,
      8.3002326931485076e-26,  -1.5196774125979935e-24, 2.0638423096910215e-23,  -3.5630445246847949e-22,
      6.2969729712766537e-21,  -1.003050027519504e-19,  1.4484644981053012e-18,  -1.7352533287387998e-17,
      9.8047210262623229e-17,  3.427928525975361e-15,   -1.8614057290172234e-13, 6.3197003174887287e-12,
      -1.8467956658700978e-10, 5.0302778464977953e-09,  -1.3218805494421881e-07, 3.4229995724766388e-06,
      -8.90400362863378e-05,   1.002395250610292,       19.677462263535361};
  VD y = polynomial((w > 6.25 ? set1(6.25) : w) - 3.125, low);
  if (any_lane(w > 6.25)) {
    const VD s = square_root(w);
    y = w > 6.25 ? (s > 4.0 ? polynomial(s - 5.05, high) : polynomial(s - 3.25, middle)) : y;
    if (any_lane(s > 6.1)) [[unlikely]]
      y = s > 6.1 ? (s > 12.0 ? polynomial(s - 19.75, last) : polynomial(s - 9.05, far)) : y;
  }
  return y;
}
STRATA_INLINE VD erfinv_vector(VD x) {
  const VD a = absolute(x), u = (1.0 - a) * (1.0 + a);
  // Near 0 the logarithm of 1 less the square, whose digits u has lost.
  const VD w = -(a < 0.1 ? log1p_inside(-(a < 0.1 ? x * x : VD{})) : log_of(u));
  const VD y = x * erfinv_over(a < 1.0 ? w : VD{});
  return a < 1.0 ? y : (a == 1.0 ? with_sign_of(set1(kInfinity), x) : set1(kNotANumber));
}
STRATA_INLINE VD normal_quantile(VD p) {
  const auto valid = (p > 0.0) & (p < 1.0);
  const VD v = valid ? p : set1(0.5), least = v < 0.5 ? v : 1.0 - v;
  // 1 - x^2 of x = 1 - 2 least; around x = 0 by x itself.
  const VD x = 1.0 - (least + least), near = x < 0.1 ? x : VD{};
  const VD w = -(x < 0.1 ? log1p_inside(-(near * near)) : log_of(4.0 * least * (1.0 - least)));
  const VD y = with_sign_of(1.4142135623730951 * x * erfinv_over(w), v - 0.5);
  return valid ? y : (p == 0.0 ? set1(-kInfinity) : (p == 1.0 ? set1(kInfinity) : set1(kNotANumber)));
}
// The same to the digits of f32: 6e-11 in w - 2.5, 2e-11 in the root of w. What lies further out, which only the
// smallest numbers do, has all digits.
STRATA_INLINE VD erfinv_over_for_f32(VD w) {
  static constexpr double low[] = {-2.120357937081943e-11, 1.230288792194333e-10,  8.327003513367655e-10,
                                   -1.085439690004752e-08, 1.369149411769071e-08,  4.786448230604586e-07,
                                   -3.417115226632202e-06, -4.995881445114588e-06, 0.0002182506493911314,
                                   -0.001252708083626383,  -0.004177317810135281,  0.2466402767852692,
                                   1.501409351110792};
  static constexpr double high[] = {-3.817715367675185e-06, 1.190003378179844e-05, -1.300108680626957e-06,
                                    -5.833352591080272e-05, 0.000140556014826826,  -9.624885165763241e-05,
                                    -0.0003253728478243088, 0.001272272629780556,  -0.002557819740628033,
                                    0.003857868053997051,   -0.005377534901267245, 0.007127973083415919,
                                    1.003647813497989,      2.953301733634061};
  VD y = polynomial((w > 5.0 ? set1(5.0) : w) - 2.5, low);
  if (any_lane(w > 5.0)) {
    y = w > 5.0 ? polynomial(square_root(w) - 3.12, high) : y;
    if (any_lane(w > 16.5)) [[unlikely]]
      y = w > 16.5 ? erfinv_over(w) : y;
  }
  return y;
}
STRATA_INLINE VD erfinv_for_f32(VD x) {
  const VD a = absolute(x), w = log2_in_double((1.0 - a) * (1.0 + a)) * -kLn2;
  const VD y = x * erfinv_over_for_f32(a < 1.0 ? w : VD{});
  return a < 1.0 ? y : (a == 1.0 ? with_sign_of(set1(kInfinity), x) : set1(kNotANumber));
}
STRATA_INLINE VD normal_quantile_for_f32(VD p) {
  const auto valid = (p > 0.0) & (p < 1.0);
  const VD v = valid ? p : set1(0.5), least = v < 0.5 ? v : 1.0 - v;
  const VD x = 1.0 - (least + least), w = log2_in_double(4.0 * least * (1.0 - least)) * -kLn2;
  const VD y = with_sign_of(1.4142135623730951 * x * erfinv_over_for_f32(w), v - 0.5);
  return valid ? y : (p == 0.0 ? set1(-kInfinity) : (p == 1.0 ? set1(kInfinity) : set1(kNotANumber)));
}
STRATA_INLINE VD sinc_vector(VD x) {
  return x == 0.0 ? set1(1.0) : sin_half_turns(x) / (kPiOf * x);
}

}  // namespace strata::STRATA_VEC_NS
