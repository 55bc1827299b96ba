#pragma once
// Numbers of distributions by rejection, one element at a time, in double precision. Every loop is bounded. constexpr
// and templates so that they compile for CUDA devices too, as inverse_normal in random_kernels.h.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <numbers>

#include "strata/core/rng.h"

namespace strata::sampler {

/// What is drawn: from `a`, and for binomial from `a` trials of probability `b`; for gamma_slope `b` is a sample.
enum class Kind : uint8_t { gamma, gamma_slope, poisson, binomial };

inline constexpr uint64_t kBlocks = 256;  ///< counter blocks of an element: more than its loops can take
inline constexpr int kRounds = 100;       ///< of proposals, each taken with probability 0.7 at least

/// The pair of uniform numbers, in [0, 1) and (0, 1], that a block makes.
template <class Bits, std::same_as<double> Real>
constexpr void split(const Bits& bits, Real& first, Real& second) {
  first = uniform_f64(bits[0], bits[1]);
  second = 1 - uniform_f64(bits[2], bits[3]);
}
/// An element's own stretch of a stream of such pairs.
template <std::same_as<double> Real>
struct Stream {
  RngKey key;
  uint64_t block;
  Real first = 0, second = 0;
  constexpr void draw() { split(philox(key, block++), first, second); }
};

/// log(k!) by Stirling's series, from 10 on; exact products below.
template <std::same_as<double> Real>
constexpr Real log_factorial(Real k) {
  if (k < 10) {
    Real product = 1;
    for (int i = 2; i <= static_cast<int>(k); ++i) product *= i;
    return std::log(product);
  }
  const Real n = k + 1, r = 1 / (n * n);
  return (n - 0.5) * std::log(n) - n + 0.91893853320467274178 +
         (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - r / 1680) * r) * r) / n;
}

/// cos(2 pi x) for x in [0, 1).
template <std::same_as<double> Real>
constexpr Real cosine_of_turns(Real x) {
#ifdef __CUDA_ARCH__
  return ::cospi(2 * x);  // without the reduction of large arguments
#else
  return std::cos(2 * std::numbers::pi * x);
#endif
}

/// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000).
template <std::same_as<double> Real, class Source>
constexpr Real gamma(Real a, Source& s) {
  if (!(a > 0)) return a == 0 ? 0 : std::numeric_limits<Real>::quiet_NaN();
  if (a > std::numeric_limits<Real>::max()) return a;
  Real boost = 1;
  if (a < 1) {
    s.draw();
    boost = std::pow(s.second, 1 / a);
    a += 1;
  }
  const Real d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (int round = 0; round < kRounds; ++round) {
    s.draw();
    const Real x = std::sqrt(-2 * std::log(s.second)) * cosine_of_turns(s.first);
    const Real t = 1 + c * x, v = t * t * t;
    s.draw();
    // Theirs too: below this the logarithms need not be looked at.
    const bool sure = s.second < 1 - 0.0331 * x * x * x * x;
    if (t > 0 && (sure || std::log(s.second) < 0.5 * x * x + d * (1 - v + std::log(v)))) return boost * d * v;
  }
  return boost * d;
}

/// The derivative of a gamma sample x for its shape a at a fixed share below it, -(dP / da) / (dP / dx), P being the
/// distribution function (Figurnov et al., arXiv:1805.08498): by the series of P, each term with its derivative. From
/// a = 1000 on Wilson and Hilferty's approximation, whose error is then below 1e-6.
template <std::same_as<double> Real>
constexpr Real gamma_slope(Real a, Real x) {
  if (!(a > 0) || !(x >= 0)) return std::numeric_limits<Real>::quiet_NaN();
  if (x == 0) return 0;
  if (a > 1000) {
    const Real root = std::cbrt(x / a), z = (root - 1 + 1 / (9 * a)) * 3 * std::sqrt(a);
    return root * root * (root + 3 * a * (1 / (9 * a * a) - z / (6 * a * std::sqrt(a))));
  }
  // P = x^a e^-x / Gamma(a + 1) * sum of x^n / ((a + 1) .. (a + n)); dP/da over the density x^(a - 1) e^-x / Gamma(a)
  // is x / a times the sum of term (log x - psi(a + 1) - 1 / (a + 1) - .. - 1 / (a + n)).
  Real n = a + 1, shift = 0;
  for (; n < 10; n += 1) shift += 1 / n;
  const Real r = 1 / (n * n);
  const Real psi = std::log(n) - 0.5 / n - r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r / 240))) - shift;
  Real term = 1, slope = std::log(x) - psi, sum = slope;
  for (int i = 1; i < 10000; ++i) {
    term *= x / (a + i);
    slope -= 1 / (a + i);
    sum += term * slope;
    if (a + i > x && term * (std::abs(slope) + 1) < 1e-17 * std::abs(sum)) break;
  }
  return -sum * x / a;
}

/// Products of uniform numbers below 10; from there PTRS of Hoermann, "The transformed rejection method for generating
/// Poisson random variables", Insurance: Mathematics and Economics 12 (1993).
template <std::same_as<double> Real, class Source>
constexpr Real poisson(Real rate, Source& s) {
  if (!(rate >= 0)) return std::numeric_limits<Real>::quiet_NaN();
  if (rate > std::numeric_limits<Real>::max()) return rate;
  if (rate < 10) {
    const Real limit = std::exp(-rate);
    Real product = 1;
    for (int k = 0; k < 2 * kRounds; ++k) {
      s.draw();
      product *= s.second;
      if (product <= limit) return k;
    }
    return 2 * kRounds;
  }
  const Real root = std::sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const Real inverse = 1.1239 + 1.1328 / (b - 3.4), sure = 0.9277 - 3.6224 / (b - 2), log_rate = std::log(rate);
  for (int round = 0; round < kRounds; ++round) {
    s.draw();
    const Real u = s.first - 0.5, v = s.second, us = 0.5 - std::abs(u);
    const Real k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= sure) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v * inverse / (a / (us * us) + b)) <= k * log_rate - rate - log_factorial(k)) return k;
  }
  return std::floor(rate);
}

/// Sums of geometric waiting times where few successes are expected; else BTRS of Hoermann, "The generation of binomial
/// random variates", J. of Statistical Computation and Simulation 46 (1993).
template <std::same_as<double> Real, class Source>
constexpr Real binomial(Real trials, Real p, Source& s) {
  const Real n = std::floor(trials);
  if (!(n >= 0 && n <= 9007199254740992.0 && p >= 0 && p <= 1)) return std::numeric_limits<Real>::quiet_NaN();
  if (p == 0 || n == 0) return 0;
  const bool mirrored = p > 0.5;
  const Real q = mirrored ? 1 - p : p;
  if (q == 0) return n;
  Real found = std::floor(n * q);  // where all proposals are refused
  if (n * q < 10) {
    const Real rate = std::log1p(-q);
    Real sum = 0;
    found = 0;
    for (int i = 0; i < 2 * kRounds; ++i) {
      s.draw();
      sum += std::floor(std::log(s.second) / rate) + 1;
      if (sum > n) break;
      found += 1;
    }
  } else {
    const Real spread = std::sqrt(n * q * (1 - q)), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * q;
    const Real c = n * q + 0.5, sure = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread, odds = std::log(q / (1 - q));
    const Real m = std::floor((n + 1) * q), peak = log_factorial(m) + log_factorial(n - m);
    for (int round = 0; round < kRounds; ++round) {
      s.draw();
      const Real u = s.first - 0.5, v = s.second, us = 0.5 - std::abs(u);
      const Real k = std::floor((2 * a / us + b) * u + c);
      if (k < 0 || k > n) continue;
      if ((us >= 0.07 && v <= sure) || std::log(v * alpha / (a / (us * us) + b)) <=
                                           peak - log_factorial(k) - log_factorial(n - k) + (k - m) * odds) {
        found = k;
        break;
      }
    }
  }
  return mirrored ? n - found : found;
}

/// What `kind` makes of a (and b) with the numbers of a stream.
template <std::same_as<double> Real, class Source>
constexpr Real drawn(Kind kind, Real a, Real b, Source& s) {
  return kind == Kind::gamma ? gamma(a, s) : kind == Kind::poisson ? poisson(a, s) : binomial(a, b, s);
}
/// The key of all elements' streams, that of element i beginning at block i * kBlocks.
constexpr RngKey stream_key(RngKey key) {
  const auto bits = philox(key, 0);
  return {(static_cast<uint64_t>(bits[0]) << 32) | bits[1], (static_cast<uint64_t>(bits[2]) << 32) | bits[3]};
}
/// Element i of what `kind` makes of a (and b).
template <std::same_as<double> Real>
constexpr Real element(Kind kind, RngKey key, uint64_t i, Real a, Real b) {
  if (kind == Kind::gamma_slope) return gamma_slope(a, b);
  Stream<Real> s{stream_key(key), i * kBlocks};
  return drawn(kind, a, b, s);
}

}  // namespace strata::sampler
