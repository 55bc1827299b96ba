#pragma once
// The special functions of one number, in double precision; kernels of smaller dtypes round their results once. They
// are bounded in time for every argument. Sources: NIST's Digital Library of Mathematical Functions (DLMF,
// https://dlmf.nist.gov), by its numbers. The includer is a .cpp of the CPU or a .cu: the same text serves both.

#include <cmath>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
// Called, not inlined: each stands in many kernels, several times in some.
#define STRATA_SPECIAL __device__ __noinline__
#define STRATA_SPECIAL_TABLE __device__ const
#else
#define STRATA_SPECIAL inline
#define STRATA_SPECIAL_TABLE constexpr
#endif

namespace strata {
namespace {

#include "strata/ops/special/tables_inl.h"

constexpr double kPi = 3.14159265358979323846, kEuler = 0.57721566490153286061, kInf = HUGE_VAL;
constexpr double kSqrtPi = 1.77245385090551602730, kSqrtHalf = 0.70710678118654752440;
constexpr double kEps = 1.1102230246251565e-16;
#define STRATA_SPECIAL_NAN std::numeric_limits<double>::quiet_NaN()

// ---- pi times an argument, without losing what the product would round

STRATA_SPECIAL double sin_pi(double x) {
  const double r = x - 2 * std::nearbyint(x / 2);
  if (r > 0.5) return std::sin(kPi * (1 - r));
  if (r < -0.5) return -std::sin(kPi * (1 + r));
  return std::sin(kPi * r);
}
STRATA_SPECIAL double cos_pi(double x) {
  const double r = std::abs(x - 2 * std::nearbyint(x / 2));
  return r < 0.25 ? std::cos(kPi * r) : r > 0.75 ? -std::cos(kPi * (1 - r)) : std::sin(kPi * (0.5 - r));
}
// sin(pi x) / (pi x)
STRATA_SPECIAL double sinc_of(double x) {
  return x == 0 ? 1.0 : sin_pi(x) / (kPi * x);
}

// ---- gamma and its kin

STRATA_SPECIAL double log_gamma(double x) {
#ifdef __CUDACC__
  return ::lgamma(x);
#else
  int sign;  // lgamma() writes the sign to a global
  return ::lgamma_r(x, &sign);
#endif
}

// DLMF 5.11.2 from 10 on, reached by the recurrence; 5.5.4 below 0. Around the zero between 1 and 2 the differences
// from that zero, so that the result is good relative to itself.
STRATA_SPECIAL double digamma_of(double x) {
  if (x == 0) return std::copysign(kInf, -x);
  if (x < 0) {
    if (x == std::floor(x)) return STRATA_SPECIAL_NAN;
    const double y = digamma_of(1 - x);
    return y - kPi * cos_pi(x) / sin_pi(x);
  }
  // B_2k / 2k
  const double b[8] = {0.08333333333333333,  -0.008333333333333333, 0.003968253968253968, -0.004166666666666667,
                       0.007575757575757576, -0.021092796092796094, 0.08333333333333333,  -0.4432598039215686};
  if (x >= 1 && x <= 2) {
    constexpr double zero = 1.4616321449683622, rest = 9.549995429965697e-17;
    const double d = (x - zero) - rest;
    double sum = 0;
    for (int k = 0; k < 10; ++k) sum += 1 / ((k + x) * (k + zero));
    const double a = x + 10, c = zero + 10, aa = 1 / (a * a), cc = 1 / (c * c);
    double y = std::log1p(d / c) + d / (2 * a * c);
    const double first = -d * (a + c) * aa * cc;  // a^-2 - c^-2
    double difference = first, power = 1;
    for (int k = 0; k < 8; ++k) {
      y -= b[k] * difference;
      power *= cc;
      difference = aa * difference + first * power;
    }
    return y + d * sum;
  }
  double y = 0;
  while (x < 10) {
    y -= 1 / x;
    x += 1;
  }
  const double r = 1 / (x * x);
  double tail = 0;
  for (int k = 7; k >= 0; --k) tail = (tail + b[k]) * r;
  return y + (std::log(x) - 0.5 / x - tail);
}

// q^s zeta(s, q) for s > 1 and q > 0: Euler and Maclaurin's formula (DLMF 25.11.28) behind 12 terms.
STRATA_SPECIAL double scaled_zeta(double s, double q) {
  // B_2k / (2k)!
  const double b[12] = {0.08333333333333333,   -0.001388888888888889,  3.306878306878307e-05,  -8.267195767195768e-07,
                        2.08767569878681e-08,  -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13,
                        8.586062056277845e-15, -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19};
  double sum = 1;
  for (int k = 1; k < 12; ++k) {
    const double term = std::exp(-s * std::log1p(k / q));
    sum += term;
    if (s > 2 && term < 0.01 * kEps * sum) return sum;
  }
  const double w = q + 12, scale = std::exp(-s * std::log1p(12 / q));
  if (scale == 0) return sum;
  double tail = w / (s - 1) + 0.5, factor = s / w;
  for (int k = 0; k < 12; ++k) {
    const double add = b[k] * factor;
    tail += add;
    if (std::abs(add) < 0.1 * kEps * tail) break;
    factor *= (s + (2 * k + 1)) / w * ((s + (2 * k + 2)) / w);
  }
  return sum + scale * tail;
}

STRATA_SPECIAL double positive_zeta(double s, double q) {
  if (q == kInf) return 0;
  if (s == kInf) return q > 1 ? 0 : q == 1 ? 1 : kInf;
  const double z = scaled_zeta(s, q), p = std::pow(q, -s);
  return p > 1e-290 && p < 1e290 ? p * z : std::pow(q, 1 - s) * (z / q);
}

// Hurwitz's zeta: the sum of (q + k)^-s. Below 0 for whole s, where the terms below 0 are themselves a difference of
// two such sums.
STRATA_SPECIAL double zeta_of(double s, double q) {
  if (s != s || q != q || s < 1) return STRATA_SPECIAL_NAN;
  if (s == 1) return kInf;
  if (q > 0) return positive_zeta(s, q);
  if (q == std::floor(q)) return q == -kInf ? STRATA_SPECIAL_NAN : kInf;
  if (s != std::floor(s)) return STRATA_SPECIAL_NAN;
  const double f = -q - std::floor(-q);
  const double below = positive_zeta(s, f) - positive_zeta(s, 1 - q);
  return (std::fmod(s, 2) == 0 ? below : -below) + positive_zeta(s, 1 - f);
}

// The derivative of digamma for x > 0: DLMF 5.15.8 from 10 on, reached by the recurrence.
STRATA_SPECIAL double trigamma_of(double x) {
  // B_2k
  const double b[8] = {0.16666666666666666, -0.03333333333333333, 0.023809523809523808, -0.03333333333333333,
                       0.07575757575757576, -0.2531135531135531,  1.1666666666666667,   -7.092156862745098};
  double sum = 0;
  while (x < 10) {
    sum += 1 / (x * x);
    x += 1;
  }
  const double r = 1 / (x * x);
  double tail = 0;
  for (int k = 7; k >= 0; --k) tail = (tail + b[k]) * r;
  return sum + ((1 + tail) / x + 0.5 * r);
}

// The n-th derivative of digamma, n >= 1, `sign` being (-1)^(n+1): DLMF 5.15.1.
STRATA_SPECIAL double polygamma_of(double n, double sign, double x) {
  if (x != x || x == -kInf) return STRATA_SPECIAL_NAN;
  if (x == kInf) return 0;
  if (x <= 0) {
    const double z = zeta_of(n + 1, x);
    if (n <= 170) return sign * std::tgamma(n + 1) * z;
    return sign * (z < 0 ? -1 : 1) * std::exp(log_gamma(n + 1) + std::log(std::abs(z)));
  }
  if (n == 1) return trigamma_of(x);
  const double z = scaled_zeta(n + 1, x) / x, p = std::pow(x, -n);
  if (n <= 170 && p > 1e-290 && p < 1e290) return sign * (std::tgamma(n + 1) * p) * z;
  return sign * std::exp(log_gamma(n + 1) - n * std::log(x) + std::log(z));
}

// ---- incomplete gamma functions

// log(1 + x) - x for |x| <= 0.4, where the difference would cancel: 2 artanh(x / (2 + x)).
STRATA_SPECIAL double log1p_less(double x) {
  const double r = x / (2 + x), rr = r * r;
  double sum = 0;
  for (int k = 31; k >= 3; k -= 2) sum = sum * rr + 1.0 / k;
  return 2 * r * rr * sum - r * x;
}
// log Gamma(1 + a) for a in [0, 1): also good relative to small a.
STRATA_SPECIAL double log_gamma_of_one_more(double a) {
  if (a < 1e-3)  // DLMF 5.7.3
    return a * (-kEuler + a * (0.8224670334241132 +
                               a * (-0.40068563438653143 + a * (0.27058080842778454 - a * 0.20738555102867398))));
  const double t = 1 + a;
  return log_gamma(t) + (a - (t - 1)) * digamma_of(t);
}
// x^a exp(-x) / Gamma(a + 1)
STRATA_SPECIAL double gamma_prefix(double a, double x) {
  if (a < 20) {
    const double e = std::exp(-x / 2);
    return std::pow(x, a) * e / std::tgamma(a + 1) * e;
  }
  const double mu = (x - a) / a, r = 1 / (a * a);
  const double log_part = std::abs(mu) <= 0.4 ? log1p_less(mu) : std::log(x / a) - mu;
  const double stirling = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / a;
  return std::exp(a * log_part - stirling) / std::sqrt(2 * kPi * a);
}
// The lower (P) and upper (Q) functions: a power series (DLMF 8.11.4), a continued fraction (8.9.2), or around x = a,
// where these need many terms, the uniform expansion (8.12.3, 8.12.8).
STRATA_SPECIAL double incomplete_gamma(double a, double x, bool upper) {
  if (a != a || x != x || a < 0 || x < 0) return STRATA_SPECIAL_NAN;
  if (a == 0) return x == 0 ? STRATA_SPECIAL_NAN : upper ? 0 : 1;
  if (x == 0) return upper ? 1 : 0;
  if (a == kInf) return x == kInf ? STRATA_SPECIAL_NAN : upper ? 1 : 0;
  if (x == kInf) return upper ? 0 : 1;
  if (a >= 20 && std::abs(x - a) <= 0.4 * a) {
    const double mu = (x - a) / a, half_square = -log1p_less(mu);
    const double eta = std::copysign(std::sqrt(2 * half_square), mu), root = std::sqrt(a / 2);
    double sum = 0;
    for (int k = 11; k >= 0; --k) {
      double c = 0;
      for (int n = 17; n >= 0; --n) c = c * eta + kGammaTail[k][n];
      sum = sum / a + c;
    }
    const double rest = std::exp(-a * half_square) / std::sqrt(2 * kPi * a) * sum;
    return upper ? 0.5 * std::erfc(eta * root) + rest : 0.5 * std::erfc(-eta * root) - rest;
  }
  if (upper && a < 1 && x < 1.1) {  // 1 - P where P is near 1: DLMF 8.7.1
    const double log_power = a * std::log(x) - log_gamma_of_one_more(a);
    double term = 1, sum = 0;
    for (int n = 1; n < 40; ++n) {
      term *= -x / n;
      sum += term / (a + n);
      if (std::abs(term) < 0.01 * kEps) break;
    }
    return -std::expm1(log_power) - a * std::exp(log_power) * sum;
  }
  const double prefix = gamma_prefix(a, x);
  if (x < a + 1 || x < 1.1) {
    double term = 1, sum = 1;
    for (int n = 1; n < 1000; ++n) {
      term *= x / (a + n);
      sum += term;
      if (term < 0.1 * kEps * sum) break;
    }
    return upper ? 1 - prefix * sum : prefix * sum;
  }
  // Lentz's evaluation of the continued fraction.
  constexpr double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int n = 1; n < 2000; ++n) {
    const double an = n * (a - n);
    b += 2;
    d = an * d + b;
    c = b + an / c;
    if (std::abs(d) < tiny) d = tiny;
    if (std::abs(c) < tiny) c = tiny;
    d = 1 / d;
    const double step = d * c;
    h *= step;
    if (std::abs(step - 1) < kEps) break;
  }
  const double q = prefix * a * h;
  return upper ? q : 1 - q;
}

// ---- error functions and the normal distribution

// exp(x^2) with the square's rounding made good.
STRATA_SPECIAL double exp_square(double x) {
  const double square = x * x;
  return square > 709 ? std::exp(square) : std::exp(square) * (1 + std::fma(x, x, -square));
}
STRATA_SPECIAL double erfcx_of(double x) {
  if (x < 0) return x < -27 ? kInf : 2 * exp_square(x) - erfcx_of(-x);
  if (x < 10) return exp_square(x) * std::erfc(x);
  const double r = 0.5 / (x * x);  // DLMF 7.12.1
  double term = 1, sum = 1;
  for (int k = 1; k < 20; ++k) {
    term *= -(2 * k - 1) * r;
    sum += term;
    if (std::abs(term) < 0.1 * kEps) break;
  }
  return sum / x / kSqrtPi;
}
STRATA_SPECIAL double ndtr_of(double x) {
  const double t = -x * kSqrtHalf, y = std::erfc(t);
  if (t < 1 || t > 27) return 0.5 * y;
  // What rounding x / sqrt(2) lost, times the derivative.
  const double lost = std::fma(-x, kSqrtHalf, -t) + x * 4.833646656726457e-17;
  return 0.5 * y - lost * std::exp(-t * t) / kSqrtPi;
}
STRATA_SPECIAL double log_ndtr_of(double x) {
  if (x < -1) return std::log(0.5 * erfcx_of(-x * kSqrtHalf)) - 0.5 * x * x;
  return std::log1p(-0.5 * std::erfc(x * kSqrtHalf));
}
// The y > 0 with erfc(y) = q, 0 < q <= 1/2: Newton's method on the logarithm, where the function is nearly a parabola.
STRATA_SPECIAL double erfc_inverse(double q) {
  const double log_q = std::log(q);
  double y = std::sqrt(-log_q);
  y = std::sqrt(-std::log(q * kSqrtPi * (y > 0.9 ? y : 0.9)));
  for (int i = 0; i < 4; ++i) {
    const double e = erfcx_of(y), slope = 2 / (kSqrtPi * e);                       // -(log erfc)'
    const double f = std::log(e) - y * y - log_q, bend = slope * (slope - 2 * y);  // -(log erfc)''
    y += f / (slope + 0.5 * f * bend / slope);                                     // Halley's step
  }
  return y;
}
STRATA_SPECIAL double erfinv_of(double x) {
  const double size = std::abs(x);
  if (!(size < 1)) return size == 1 ? std::copysign(kInf, x) : STRATA_SPECIAL_NAN;
  if (size > 0.5) return std::copysign(erfc_inverse(1 - size), x);
  double y = x * (kSqrtPi / 2) * (1 + x * x * (kPi / 12));
  for (int i = 0; i < 3; ++i) {
    const double f = std::erf(y) - x;
    y -= f / (2 / kSqrtPi * std::exp(-y * y) + y * f);
  }
  return y;
}
STRATA_SPECIAL double ndtri_of(double p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -kInf : p == 1 ? kInf : STRATA_SPECIAL_NAN;
  if (p >= 0.25 && p <= 0.75) return erfinv_of(2 * (p - 0.5)) / kSqrtHalf;
  return p < 0.5 ? -erfc_inverse(2 * p) / kSqrtHalf : erfc_inverse(2 * (1 - p)) / kSqrtHalf;
}
STRATA_SPECIAL double entr_of(double x) {
  return x > 0 ? -x * std::log(x) : x == 0 ? 0 : x != x ? x : -kInf;
}
STRATA_SPECIAL double logit_of(double x) {
  if (x < 0.25 || x > 0.75) return std::log(x) - std::log1p(-x);
  return std::log1p((2 * x - 1) / (1 - x));
}

// ---- Bessel functions

// exp(-|x|) I_n(x), 0 <= n <= 16: the power series (DLMF 10.25.2), all of one sign, or the asymptotic one (10.40.1).
STRATA_SPECIAL double scaled_bessel_i(int n, double x) {
  const double size = std::abs(x), sign = n % 2 == 1 && x < 0 ? -1 : 1;
  if (size == kInf) return 0;
  double term = 1, sum = 1;
  if (size <= 20 + n * n) {
    const double square = size * size / 4;
    double first = 1;
    for (int k = 1; k <= n; ++k) first *= size / (2 * k);
    for (int k = 1; k < 500; ++k) {
      term *= square / (k * (k + n));
      sum += term;
      if (term < 0.1 * kEps * sum) break;
    }
    return sign * first * sum * std::exp(-size);
  }
  for (int k = 1; k < 40; ++k) {
    term *= ((2 * k - 1) * (2 * k - 1) - 4.0 * n * n) / (8 * k * size);
    sum += term;
    if (std::abs(term) < 0.1 * kEps) break;
  }
  return sign * sum / std::sqrt(2 * kPi * size);
}
STRATA_SPECIAL double bessel_i(int n, double x) {
  const double half = std::exp(std::abs(x) / 2), scaled = scaled_bessel_i(n, x);
  return std::abs(x) > 1500 ? (n % 2 == 1 && x < 0 ? -kInf : kInf) : scaled * half * half;
}

// exp(x) K_n(x), n 0 or 1: DLMF 10.31.1 and 10.31.2, a table, 10.40.2.
STRATA_SPECIAL double scaled_bessel_k(int n, double x) {
  if (!(x > 0)) return x == 0 ? kInf : STRATA_SPECIAL_NAN;
  if (x == kInf) return 0;
  if (x <= 1) {
    const double log_half = std::log(x / 2), square = x * x / 4;
    double term = 1, i_sum = 0, psi_sum = 0, psi = -kEuler;  // psi(k + 1)
    for (int k = 0; k < 14; ++k) {
      const double next = psi + 1.0 / (k + 1);
      i_sum += term;
      psi_sum += term * (n == 0 ? psi : psi + next);
      psi = next;
      term *= square / ((k + 1.0) * (k + 1.0 + n));
    }
    const double k0 = psi_sum - log_half * i_sum;
    const double k1 = 1 / x + x / 2 * (log_half * i_sum - 0.5 * psi_sum);
    return std::exp(x) * (n == 0 ? k0 : k1);
  }
  if (x <= 20) {
    const double t = (2 / x - 1.05) / 0.95;
    double b0 = 0, b1 = 0;
    for (int k = 27; k > 0; --k) {
      const double b2 = b1;
      b1 = b0;
      b0 = 2 * t * b1 - b2 + (n == 0 ? kBesselK0[k] : kBesselK1[k]);
    }
    return (t * b0 - b1 + (n == 0 ? kBesselK0[0] : kBesselK1[0])) / std::sqrt(x);
  }
  double term = 1, sum = 1;
  for (int k = 1; k < 40; ++k) {
    term *= (4.0 * n - (2 * k - 1) * (2 * k - 1)) / (8 * k * x);
    sum += term;
    if (std::abs(term) < 0.1 * kEps) break;
  }
  return sum * std::sqrt(kPi / (2 * x));
}

STRATA_SPECIAL double bessel_y(int n, double x) {
  if (!(x > 0)) return x == 0 ? -kInf : STRATA_SPECIAL_NAN;
  return x == kInf ? 0 : n == 0 ? ::y0(x) : ::y1(x);
}
STRATA_SPECIAL double bessel_j(int n, double x) {
  if (std::abs(x) == kInf) return 0;
  return n == 0 ? ::j0(x) : n == 1 ? ::j1(x) : ::jn(n, x);
}

// The spherical function of order 0 <= n <= 16: its series (DLMF 10.53.1), or the recurrence upwards, stable where
// x > n.
STRATA_SPECIAL double spherical_bessel_j(int n, double x) {
  const double size = std::abs(x), sign = n % 2 == 1 && x < 0 ? -1 : 1;
  if (size == kInf) return 0;
  if (size <= n + 1) {
    double first = 1, term = 1, sum = 1;
    for (int k = 1; k <= n; ++k) first *= size / (2 * k + 1);
    for (int k = 1; k < 60; ++k) {
      term *= -size * size / (2 * k * (2 * (n + k) + 1));
      sum += term;
      if (std::abs(term) < 0.1 * kEps) break;
    }
    return sign * first * sum;
  }
  const double s = std::sin(size), c = std::cos(size);
  double before = s / size;
  if (n == 0) return before;
  double now = (before - c) / size;
  for (int k = 1; k < n; ++k) {
    const double next = (2 * k + 1) / size * now - before;
    before = now;
    now = next;
  }
  return sign * now;
}

// Airy's Ai, or its derivative: a Taylor series of y'' = x y around the nearest point of a table, or beyond it DLMF
// 9.7.5, 9.7.6, 9.7.9 and 9.7.10.
STRATA_SPECIAL double airy(double x, bool derivative) {
  if (x != x) return x;
  if (std::abs(x) <= 10) {
    const int at = static_cast<int>(std::nearbyint(2 * x));
    const double from = 0.5 * at, h = x - from;
    double a0 = kAiry[at + 20][0], a1 = kAiry[at + 20][1], a2 = from * a0 / 2;  // three coefficients in a row
    double value = a0 + h * (a1 + h * a2), slope = a1 + 2 * h * a2, power = h * h;
    for (int n = 1; n < 22; ++n) {
      const double a3 = (from * a1 + a0) / ((n + 1) * (n + 2));
      slope += (n + 2) * a3 * power;
      power *= h;
      value += a3 * power;
      a0 = a1;
      a1 = a2;
      a2 = a3;
    }
    return derivative ? slope : value;
  }
  // zeta = 2/3 |x|^1.5, and what its rounding lost: the phase must be good to the last bit.
  const double size = std::abs(x), root = std::sqrt(size), root_lost = std::fma(-root, root, size) / (2 * root);
  const double product = size * root, product_lost = std::fma(size, root, -product) + size * root_lost;
  const double zeta = 2 * product / 3, lost = (std::fma(-3, zeta, 2 * product) + 2 * product_lost) / 3;
  if (!(zeta < 1e300)) return x > 0 || !derivative ? 0 : STRATA_SPECIAL_NAN;
  double u = 1, even = 1, odd = 0;
  for (int k = 1; k < 30; ++k) {
    u *= (6 * k - 5.0) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1)) / zeta;
    const double c = derivative ? -(6 * k + 1.0) / (6 * k - 1) * u : u;
    const double add = x > 0 ? (k % 2 ? -c : c) : (k / 2 % 2 ? -c : c);
    if (x > 0 || k % 2 == 0)
      even += add;
    else
      odd += add;
    if (u < 0.01 * kEps) break;
  }
  const double quarter = std::sqrt(root);
  if (x > 0) {
    const double e = std::exp(-zeta) * (1 - lost) / (2 * kSqrtPi);
    return derivative ? -e * quarter * even : e / quarter * even;
  }
  const double s = std::sin(zeta), c = std::cos(zeta);
  const double s_lost = std::sin(lost), c_lost = std::cos(lost);  // beyond 1e20 it is no small angle any more
  const double sine = s * c_lost + c * s_lost, cosine = c * c_lost - s * s_lost;
  const double cos_phase = (cosine + sine) * kSqrtHalf, sin_phase = (sine - cosine) * kSqrtHalf;
  if (derivative) return quarter / kSqrtPi * (sin_phase * even - cos_phase * odd);
  return (cos_phase * even + sin_phase * odd) / (kSqrtPi * quarter);
}

}  // namespace
}  // namespace strata
