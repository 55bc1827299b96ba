// Special functions by sums and recurrences on vectors of doubles, for one processor level: lanes go on together until
// the last has what it needs, and keep what they had when they were done, so that no result depends on its neighbours.
// Lanes outside of what these serve are computed one by one by special_inl.h's functions.
// No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class F>
STRATA_INLINE VD each_hard(VD y, VL hard, F f) {
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kLanes<double>; ++i)
      if (hard[i]) y[i] = f(i);
  return y;
}
// x^n for whole n > 0
STRATA_INLINE VD whole_power(VD x, int n) {
  VD y = set1(1.0);
  for (; n > 0; n >>= 1, x = x * x)
    if (n & 1) y = y * x;
  return y;
}
// B_2k / (2k)!
constexpr double kEulerMaclaurin[] = {0.08333333333333333,    -0.001388888888888889,  3.306878306878307e-05,
                                      -8.267195767195768e-07, 2.08767569878681e-08,   -5.284190138687493e-10,
                                      1.3382536530684679e-11, -3.3896802963225827e-13};

// The n-th derivative of digamma, `sign` being (-1)^(n+1): n! sign zeta(n + 1, x), by Euler and Maclaurin's formula
// behind 12 terms (DLMF 25.11.28).
STRATA_INLINE VD polygamma_vector(VD x, double order, double sign) {
  if (order == 1) return trigamma_vector(x);
  const auto easy = (x > 1e-15) & (x < 1e15);
  if (!(order <= 16)) return each_hard(x, ~VL{}, [&](int i) { return polygamma_of(order, sign, x[i]); });
  const int n = static_cast<int>(order), s = n + 1;
  double factorial = 1;
  for (int k = 2; k <= n; ++k) factorial *= k;
  const VD v = easy ? x : set1(1.0);
  VD sum = VD{};
  for (int k = 0; k < 12; ++k) sum = sum + whole_power(1.0 / (v + static_cast<double>(k)), s);
  const VD inverse = 1.0 / (v + 12.0), square = inverse * inverse, scale = whole_power(inverse, n);
  VD tail = 1.0 / n + 0.5 * inverse, factor = s * square;
  for (int k = 0; k < 8; ++k) {
    tail = fma(factor, set1(kEulerMaclaurin[k]), tail);
    factor = factor * square * ((s + 2.0 * k + 1) * (s + 2.0 * k + 2));
  }
  return each_hard((sum + scale * tail) * (factorial * sign), ~easy,
                   [&](int i) { return polygamma_of(order, sign, x[i]); });
}

// Hurwitz's zeta: the sum of (q + k)^-s, to f64's or f32's digits.
template <bool kWide>
STRATA_INLINE VD zeta_term(VD x, VD s) {
  if constexpr (kWide) {
    const DoublePair y = log2_times(x, -s);
    return exp2_of(y.high, y.low);
  } else {
    return exp(-s * log_of(x));
  }
}
template <bool kWide>
STRATA_INLINE VD zeta_vector(VD s, VD q) {
  const auto easy = (s > 1.0) & (s < 60.0) & (q > 1e-4) & (q < 1e6);
  constexpr int kTerms = kWide ? 12 : 9, kCorrections = kWide ? 8 : 5;
  const VD power = easy ? s : set1(2.0), first = easy ? q : set1(1.0);
  VD sum = VD{};
  VL going = ~VL{};
  for (int k = 0; k < kTerms; ++k) {
    const VD term = zeta_term<kWide>(first + static_cast<double>(k), power);
    sum = going ? sum + term : sum;
    if (k == 0) continue;
    // What is left is less than term w / (s - 1).
    going = going & (term * (first + k) > (kWide ? 1e-17 : 1e-10) * sum * (power - 1.0));
    if (!any_lane(going)) return each_hard(sum, ~easy, [&](int i) { return zeta_of(s[i], q[i]); });
  }
  const VD w = first + static_cast<double>(kTerms), inverse = 1.0 / w, square = inverse * inverse;
  const VD scale = zeta_term<kWide>(w, power);
  VD tail = w / (power - 1.0) + 0.5, factor = power * inverse;
  for (int k = 0; k < kCorrections; ++k) {
    tail = fma(factor, set1(kEulerMaclaurin[k]), tail);
    factor = factor * square * ((power + (2.0 * k + 1)) * (power + (2.0 * k + 2)));
  }
  return each_hard(going ? fma(scale, tail, sum) : sum, ~easy, [&](int i) { return zeta_of(s[i], q[i]); });
}

// The incomplete gamma functions to f64's or f32's digits, for a so small that the power's logarithm has enough of
// them: the power series or the continued fraction.
template <bool kWide>
STRATA_INLINE VD incomplete_gamma_vector(VD a, VD x, bool upper) {
  constexpr double kDigits = kWide ? 1e-17 : 1e-12, kStill = kWide ? 2e-15 : 1e-12;
  const auto easy = (a > 1e-3) & (a < (kWide ? 20.0 : 200.0)) & (x > 1e-10) & (x < (kWide ? 60.0 : 1000.0));
  const auto series = (x < a + 1.0) | (x < 1.1);
  // 1 - P where P is near 1 has a formula of its own.
  const VL near_one = upper ? (VL)((a < 1.0) & (x < 1.1)) : VL{};
  const VL hard = ~easy | near_one;
  const VD p = hard ? set1(1.0) : a, v = hard ? set1(1.0) : x;
  const VD prefix = exp(fma(p, log_of(v), -v) - log_gamma_positive(p + 1.0));  // x^a e^-x / Gamma(a + 1)
  const VL by_series = hard ? VL{} : (VL)series, by_fraction = hard ? VL{} : ~(VL)series;
  VD result = VD{};
  if (any_lane(by_series)) {
    VD term = set1(1.0), sum = set1(1.0), n = p;
    VL going = by_series;
    for (int k = 1; k < 1000; ++k) {
      n = n + 1.0;
      term = term * (v / n);
      sum = going ? sum + term : sum;
      if (k % 4 != 0) continue;
      going = going & (term > kDigits * sum);
      if (!any_lane(going)) break;
    }
    const VD lower = prefix * sum;
    result = upper ? 1.0 - lower : lower;
  }
  if (any_lane(by_fraction)) {
    // By the recurrence of numerators and denominators, which are kept near 1.
    const VD z = by_fraction ? v : set1(1e3);
    VD b = z + 1.0 - p, below = set1(1.0), here = b, over_below = VD{}, over = set1(1.0), before = VD{};
    VL going = by_fraction;
    for (int k = 1; k < 2000; ++k) {
      const double n = k;
      const VD an = n * (p - n);
      b = b + 2.0;
      const VD next = fma(b, here, an * below), over_next = fma(b, over, an * over_below);
      below = here, over_below = over, here = next, over = over_next;
      if (k % 4 != 0) continue;
      const VD scale = 1.0 / here, fraction = over * scale;
      below = below * scale, over_below = over_below * scale, over = fraction, here = set1(1.0);
      const VL moved = absolute(fraction - before) > kStill * absolute(fraction);
      before = going ? fraction : before;
      going = going & moved;
      if (!any_lane(going)) break;
    }
    const VD q = prefix * p * before;
    result = by_fraction ? (upper ? q : 1.0 - q) : result;
  }
  return each_hard(result, hard, [&](int i) { return incomplete_gamma(a[i], x[i], upper); });
}

// Airy's Ai, or its derivative, for |x| <= 10: a Taylor series of y'' = x y around the nearest point of a table.
STRATA_INLINE VD airy_vector(VD x, bool derivative) {
  const auto easy = absolute(x) <= 10.0;
  const VD v = easy ? x : VD{}, at = nearest(v + v), from = 0.5 * at, h = v - from;
  VD a0, a1;
  for (int i = 0; i < kLanes<double>; ++i) {
    const int point = static_cast<int>(at[i]) + 20;
    a0[i] = kAiry[point][0], a1[i] = kAiry[point][1];
  }
  VD a2 = from * a0 * 0.5, value = fma(h, fma(h, a2, a1), a0), slope = fma(2.0 * h, a2, a1), power = h * h;
  for (int n = 1; n < 22; ++n) {
    const VD a3 = fma(from, a1, a0) * (1.0 / ((n + 1.0) * (n + 2.0)));
    slope = fma((n + 2.0) * a3, power, slope);
    power = power * h;
    value = fma(a3, power, value);
    a0 = a1, a1 = a2, a2 = a3;
  }
  return each_hard(derivative ? slope : value, ~easy, [&](int i) { return airy(x[i], derivative); });
}

// The polynomials of orthogonal_polynomial(), by the recurrence of all lanes' orders.
STRATA_INLINE VD polynomial_vector(int family, int derivative, VD argument, VD order) {
  const bool shifted = family >= 4 && family < 8, chebyshev = family < 8;
  const int kind = shifted ? family - 4 : family;
  const VD n = truncated(order), x = shifted ? argument + argument - 1.0 : argument;
  // Higher ones have other formulas.
  const auto easy = (n >= 0.0) & (n <= (chebyshev ? 32.0 : 1000.0)) & (x == x);
  const VL hard = derivative != 0 ? ~VL{} : (VL)~easy;
  const VD last = hard ? VD{} : n;
  VD below = VD{}, here = set1(1.0);
  if (chebyshev) {  // one factor but for the first step
    const VD twice = x + x;
    const VD first = (kind == kChebyshevT ? x : twice) + (kind == kChebyshevV ? -1.0 : kind == kChebyshevW ? 1.0 : 0.0);
    below = here;
    here = last > 0.0 ? first : here;
    for (double k = 1;; ++k) {
      const auto going = last > k;
      if (!any_lane(going)) break;
      const VD next = fma(twice, here, -below);
      below = here;
      here = going ? next : here;
    }
    return each_hard(here, hard,
                     [&](int i) { return orthogonal_polynomial(family, derivative, argument[i], order[i]); });
  }
  for (int k = 0;; ++k) {
    const auto going = last > static_cast<double>(k);
    if (!any_lane(going)) break;
    // p_(k+1) = (a x + b) p_k - c p_(k-1)
    double a = 2, b = 0, c = 1;
    if (kind == kHermiteH) {
      c = 2.0 * k;
    } else if (kind == kHermiteHe) {
      a = 1, c = k;
    } else if (kind == kLaguerre) {
      const double over = 1.0 / (k + 1);
      a = -over, b = (2.0 * k + 1) * over, c = k * over;
    } else {  // Legendre's
      const double over = 1.0 / (k + 1);
      a = (2.0 * k + 1) * over, c = k * over;
    }
    const VD next = fma(fma(x, set1(a), set1(b)), here, -c * below);
    below = here;
    here = going ? next : here;
  }
  return each_hard(here, hard, [&](int i) { return orthogonal_polynomial(family, derivative, argument[i], order[i]); });
}

}  // namespace strata::STRATA_VEC_NS
