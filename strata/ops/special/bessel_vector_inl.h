// Bessel functions of orders 0 and 1 on vectors of doubles, for one processor level with a fused multiply-add. No
// include guard: see strata/ops/vec/levels_inl.h. simd_bessel_inl.h has the same for floats, in fewer terms.

namespace strata::STRATA_VEC_NS {

// What is fitted of an order: J (of order 1: J / x) and the regular part of Y (of order 1: that / x) in x^2 / 32 - 1;
// and with sqrt(pi x / 2) (J + i Y) = (P + i Q) e^(i (x - (2 order + 1) pi / 4)), P and Q x / 8 in 128 / x^2 - 1.
// Interpolated at Chebyshev nodes, the highest power first, to 1e-18 absolutely. `near` is the
// series in x^2 / 4 (DLMF 10.2.2), for x below 1.
template <int kOrder>
struct WideBesselFit;
template <>
struct WideBesselFit<0> {
  static constexpr double near[] = {1.0 / (3628800.0 * 3628800.0),
                                    -1.0 / (362880.0 * 362880.0),
                                    1.0 / (40320.0 * 40320.0),
                                    -1.0 / (5040.0 * 5040.0),
                                    1.0 / (720.0 * 720.0),
                                    -1.0 / (120.0 * 120.0),
                                    1.0 / (24.0 * 24.0),
                                    -1.0 / (6.0 * 6.0),
                                    1.0 / (2.0 * 2.0),
                                    -1.0 / (1.0 * 1.0),
                                    1.0 / (1.0 * 1.0)};
  static constexpr double j[] = {4.0030437640628113e-13,  -1.2433011305498057e-11, 3.3634504568666691e-10,
                                 -7.9153230844791921e-09, 1.5956109057781304e-07,  -2.7177492236298073e-06,
                                 3.8473197856340086e-05,  -0.00044354592243115202, 0.0040580789891408054,
                                 -0.028472718610882044,   0.14598884856759267,     -0.50746804584710004,
                                 1.0383794611437211,      -0.80808880766968716,    -0.64846928308718366,
                                 0.93030124729585717,     0.045829664859813768};
  static constexpr double y[] = {-7.0720404676663668e-13, 2.1440607287801271e-11,  -5.6462742198571368e-10,
                                 1.2898070899326986e-08,  -2.5144106942967546e-07, 4.1220543483544705e-06,
                                 -5.5818304627794554e-05, 0.00061043456437992266,  -0.0052350276707986516,
                                 0.033802856963996063,    -0.15453679652310562,    0.44824604463563139,
                                 -0.61934078263033576,    -0.21245999442065944,    1.3609456599655456,
                                 -0.4179207423206952,     -0.36202734323714519};
  static constexpr double p[] = {4.2853443206445628e-15,  -1.1778137922744418e-14, 1.839323047121498e-14,
                                 -6.4238633170286657e-14, 2.6594866926829669e-13,  -1.0635980595216018e-12,
                                 4.7729259058009562e-12,  -2.4882755278127451e-11, 1.5501058085561605e-10,
                                 -1.2121181917899886e-09, 1.2803760619529231e-08,  -2.0527448156495066e-07,
                                 6.1374160801608496e-06,  -0.0005363673192130046,  0.99945727578825194};
  static constexpr double q[] = {-4.8324604033693334e-15, 1.2703337763959492e-14,  -1.7256018173230505e-14,
                                 5.7653915313384973e-14,  -2.3306369175517689e-13, 8.6886056365661399e-13,
                                 -3.5891751531936186e-12, 1.7029439159337531e-11,  -9.4703862294699546e-11,
                                 6.4327893092411353e-10,  -5.6687160911443622e-09, 7.1062148524322764e-08,
                                 -1.4771388326473744e-06, 6.833149099344075e-05,   -0.015555113879513518};
};
template <>
struct WideBesselFit<1> {
  static constexpr double near[] = {1.0 / (3628800.0 * 39916800.0),
                                    -1.0 / (362880.0 * 3628800.0),
                                    1.0 / (40320.0 * 362880.0),
                                    -1.0 / (5040.0 * 40320.0),
                                    1.0 / (720.0 * 5040.0),
                                    -1.0 / (120.0 * 720.0),
                                    1.0 / (24.0 * 120.0),
                                    -1.0 / (6.0 * 24.0),
                                    1.0 / (2.0 * 6.0),
                                    -1.0 / (1.0 * 2.0),
                                    1.0 / (1.0 * 1.0)};
  static constexpr double j[] = {1.2093613396338289e-14,  -4.0045727387861469e-13, 1.1610597914042965e-11,
                                 -2.9430137983909161e-10, 6.4312687857530881e-09,  -1.1967081867872172e-07,
                                 1.8684525372057272e-06,  -2.4045748659686983e-05, 0.00024949458139090494,
                                 -0.0020290394945705996,  0.012456814392255438,    -0.054745818212847221,
                                 0.15858376432721938,     -0.25959486528593029,    0.15151665143806634,
                                 0.081058660385897957,    -0.058143827955991073};
  static constexpr double y[] = {-2.1610372334311008e-14, 6.9928982823163253e-13,  -1.9764105241266396e-11,
                                 4.8710207986453332e-10,  -1.0315388825601693e-08, 1.8524201840512754e-07,
                                 -2.7765055805760509e-06, 3.4063633753164045e-05,  -0.00033372257011145349,
                                 0.0025271340466828155,   -0.014131923394248493,   0.054390116307946296,
                                 -0.12641995056569882,    0.12052035426888161,     0.090227506367309349,
                                 -0.20760857842830602,    0.045102662068694829};
  static constexpr double p[] = {-4.5247520559705565e-15, 1.2466964342989236e-14,  -1.961627571558179e-14,
                                 6.8719168688927925e-14,  -2.8514106190225239e-13, 1.1461306026400314e-12,
                                 -5.1763021233265067e-12, 2.7204123552148816e-11,  -1.7131594957408771e-10,
                                 1.3603057890123779e-09,  -1.4708512124130545e-08, 2.4536766222869611e-07,
                                 -7.9596946984925211e-06, 0.00089880494167055784,  1.0009070262780821};
  static constexpr double q[] = {5.0933817307840177e-15,  -1.3419652685122838e-14, 1.8370749899635615e-14,
                                 -6.1541742373143979e-14, 2.4914316871937574e-13,  -9.3302000650506506e-13,
                                 3.876268151236579e-12,   -1.8520806488547767e-11, 1.0395068460328534e-10,
                                 -7.1511134076357114e-10, 6.4201325429831086e-09,  -8.2919607015650424e-08,
                                 1.8212018512285427e-06,  -9.6214588220546243e-05, 0.046776874027448977};
};

// J, or Y of the second kind, of 0 <= a <= 5e5.
template <int kOrder, bool kSecond>
STRATA_INLINE VD bessel_wide(VD a) {
  using Fit = WideBesselFit<kOrder>;
  constexpr double two_by_pi = 0.63661977236758134;
  const VD t = fma(a * a, set1(1.0 / 32), set1(-1.0)), inner = a < 8.0 ? t : VD{};
  VD small = polynomial(inner, Fit::j);
  if (any_lane(a < 1.0)) {
    const VD series = polynomial(a * a * 0.25, Fit::near);
    small = a < 1.0 ? (kOrder == 0 ? series : 0.5 * series) : small;
  }
  if constexpr (kSecond) {
    const VD log_half = log_of(a * 0.5);
    VD y = fma(small * log_half, set1(two_by_pi), polynomial(inner, Fit::y));
    if constexpr (kOrder == 1) y = y * a - two_by_pi / a;
    small = y;
  } else if constexpr (kOrder == 1) {
    small = small * a;
  }
  if (!any_lane(a >= 8.0)) return small;
  const VD w = 8.0 / (a < 8.0 ? set1(8.0) : a), v = fma(w * w, set1(2.0), set1(-1.0));
  const VD p = polynomial(v, Fit::p), q = polynomial(v, Fit::q) * w;
  const DoubleTurn turn = double_turn(a);
  const auto odd = (turn.quarters & 1) != 0;
  const VD sine = odd ? turn.cos : turn.sin, cosine = odd ? turn.sin : turn.cos;
  const VD sin_a = bits<VD>(bits<VLU>(sine) ^ ((turn.quarters & 2) << 62));
  const VD cos_a = bits<VD>(bits<VLU>(cosine) ^ (((turn.quarters + 1) & 2) << 62));
  // The angle less a quarter of a half turn, or three; both divided by sqrt(1/2).
  const VD c = kOrder == 0 ? cos_a + sin_a : sin_a - cos_a;
  const VD s = kOrder == 0 ? sin_a - cos_a : -(sin_a + cos_a);
  const VD size = square_root(0.31830988618379067 / a);
  return a < 8.0 ? small : size * (kSecond ? fma(p, s, q * c) : fma(p, c, -q * s));
}
template <bool kSecond>
STRATA_INLINE VD bessel_vector(VD x, double order) {
  const VD a = absolute(x);
  const auto easy = (kSecond ? x > 0.0 : a <= 5e5) & (a <= 5e5);
  const int n = static_cast<int>(order);
  VL hard = n > 1 ? ~VL{} : (VL)~easy;
  VD y = VD{};
  if (n <= 1) {
    const VD v = hard ? set1(1.0) : a;
    y = n == 0 ? bessel_wide<0, kSecond>(v) : bessel_wide<1, kSecond>(v);
    if (!kSecond && n == 1) y = x < 0.0 ? -y : y;
  }
  return each_hard(y, hard, [&](int i) { return kSecond ? bessel_y(n, x[i]) : bessel_j(n, x[i]); });
}

// exp(-a) I, or I, of a >= 0 and order 0, 1 or 2: polynomials of one sign up to 8, which lose no digits. Beyond the
// order 2 comes by the recurrence (DLMF 10.29.1), which loses two there at most.
template <int kOrder>
STRATA_INLINE VD bessel_i_wide(VD a, bool scaled) {
  using Fit = CardFits<double>;
  const auto near = a <= 8.0;
  const VD z = near ? a * a : VD{};
  VD y;
  if constexpr (kOrder == 0)
    y = polynomial(z, Fit::i0);
  else if constexpr (kOrder == 1)
    y = polynomial(z, Fit::i1) * a;
  else
    y = polynomial(z, Fit::i2) * z;
  if (scaled) y = y * exp(-a);
  if (!any_lane(a > 8.0)) return a != a ? a : y;
  const VD v = near ? set1(8.0) : a, t = 16.0 / v - 1.0;
  VD far;
  if constexpr (kOrder == 1)
    far = polynomial(t, Fit::i1_far);
  else
    far = polynomial(t, Fit::i0_far);
  if constexpr (kOrder == 2) far = far - 2.0 / v * polynomial(t, Fit::i1_far);
  far = far / square_root(v);
  if (!scaled) {
    // In two steps: I is in range where exp(a) is no more.
    const VD half = exp(0.5 * v);
    far = v > 1500.0 ? set1(kInfinity) : far * half * half;
  }
  return near ? y : far;
}
STRATA_INLINE VD bessel_i_vector(VD x, double order, bool scaled) {
  const VD a = absolute(x);
  const int n = static_cast<int>(order);
  if (n > 2) return each_hard(x, ~VL{}, [&](int i) { return scaled ? scaled_bessel_i(n, x[i]) : bessel_i(n, x[i]); });
  if (n == 0) return bessel_i_wide<0>(a, scaled);
  if (n == 2) return bessel_i_wide<2>(a, scaled);
  const VD y = bessel_i_wide<1>(a, scaled);
  return x < 0.0 ? -y : y;
}

// exp(x) K, or K, of order 0 or 1: DLMF 10.31.1 and 10.31.2 up to 2, fits of sqrt(x) exp(x) K beyond.
template <int kOrder>
STRATA_INLINE VD bessel_k_wide(VD x, bool scaled) {
  using Fit = CardFits<double>;
  const auto near = x <= 2.0;
  VD small = VD{}, far = VD{};
  if (any_lane(near)) {
    const VD v = near & (x > 0.0) ? x : set1(1.0), z = v * v, log_half = log_of(v * 0.5);
    if constexpr (kOrder == 0)
      small = fma(-log_half, polynomial(z, Fit::k0_log), polynomial(z, Fit::k0_near));
    else
      small = fma(v * 0.5, fma(log_half, polynomial(z, Fit::k1_log), -polynomial(z, Fit::k1_near)), 1.0 / v);
    if (scaled) small = small * exp(v);
  }
  if (any_lane(~(VL)near)) {
    const VD v = near ? set1(2.0) : x, t = 4.0 / v - 1.0;
    if constexpr (kOrder == 0)
      far = polynomial(t, Fit::k0_far);
    else
      far = polynomial(t, Fit::k1_far);
    far = far / square_root(v);
    if (!scaled) far = far * exp(-v);
  }
  const VD y = near ? small : far;
  return x > 0.0 ? y : (x == 0.0 ? set1(kInfinity) : set1(kNotANumber));
}
STRATA_INLINE VD bessel_k_vector(VD x, double order, bool scaled) {
  return order == 0 ? bessel_k_wide<0>(x, scaled) : bessel_k_wide<1>(x, scaled);
}

// sin(x) / x, and of higher orders one by one.
STRATA_INLINE VD spherical_bessel_vector(VD x, double order) {
  const int n = static_cast<int>(order);
  const VL hard = n > 0 ? ~VL{} : (VL)(absolute(x) > 1e300);
  const VD y = n == 0 ? double_sine<0>(hard ? set1(1.0) : x) / x : x;
  return each_hard(x == 0.0 ? set1(1.0) : y, hard, [&](int i) { return spherical_bessel_j(n, x[i]); });
}

}  // namespace strata::STRATA_VEC_NS
