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

/// 1 / sqrt(x), and x^(1/a) of an x in (0, 1]: on a card without what general functions do for all other arguments.
template <std::same_as<double> Real>
constexpr Real inverse_root(Real x) {
#ifdef __CUDA_ARCH__
  return ::rsqrt(x);
#else
  return 1 / std::sqrt(x);
#endif
}
template <std::same_as<double> Real>
constexpr Real root_of(Real x, Real a) {
#ifdef __CUDA_ARCH__
  return ::exp(::log(x) / a);
#else
  return std::pow(x, 1 / a);
#endif
}

/// x / y in f32, on a card to two units for a y from 1e-37 to 1e37, and log(x) to 1e-6 or, beyond [1/2, 2], to three
/// units.
constexpr float quotient(float x, float y) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
  return x * inverse;
#else
  return x / y;
#endif
}
constexpr float rough_log(float x) {
#ifdef __CUDA_ARCH__
  return __logf(x);
#else
  return std::log(x);
#endif
}

// ---- samplers by rejection, in steps: a card's warps are at steps of different elements at once (distributions.cu)
//
// begin() takes the parameter; false: nothing has to be drawn, `result` is it. propose() draws from the stream; of what
// is doubtful settle() says whether it is taken, which takes longer. result() is what was taken, otherwise() that of an
// element all of whose kMost proposals were refused. Of a warp's lanes kEnough wait for each other before they settle.

enum class Step : uint8_t { taken, refused, doubtful };

/// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000).
template <std::same_as<double> Real>
struct Gamma {
  static constexpr int kMost = kRounds;
  static constexpr int kEnough = 8;
  Real boost = 1, d = 0, c = 0, x = 0, t = 0, v = 0, share = 0;

  template <class Source>
  constexpr bool begin(Real a, Source& s, Real& result) {
    result = a > 0 ? a : a == 0 ? 0 : std::numeric_limits<Real>::quiet_NaN();
    if (!(a > 0) || a > std::numeric_limits<Real>::max()) return false;
    if (a < 1) {
      s.draw();
      boost = root_of(s.second, a);
      a += 1;
    }
    d = a - 1.0 / 3, c = inverse_root(9 * d);
    return true;
  }
  template <class Source>
  constexpr Step propose(Source& s) {
    s.draw();
    x = std::sqrt(-2 * std::log(s.second)) * cosine_of_turns(s.first);
    t = 1 + c * x, v = t * t * t;
    s.draw();
    share = s.second;
    if (!(t > 0)) return Step::refused;
    // Theirs too: below this the logarithms need not be looked at.
    return share < 1 - 0.0331 * x * x * x * x ? Step::taken : Step::doubtful;
  }
  constexpr bool settle() const { return std::log(share) < 0.5 * x * x + d * (1 - v + std::log(v)); }
  constexpr Real result() const { return boost * d * v; }
  constexpr Real otherwise() const { return boost * d; }
};

/// Poisson's of rates below 10: how many uniform numbers have a product above exp(-rate).
template <std::same_as<double> Real>
struct PoissonProducts {
  static constexpr int kMost = 2 * kRounds;
  static constexpr int kEnough = 1;
  Real limit = 0, product = 1, count = 0;

  /// NaN is for PoissonRejection.
  static constexpr bool takes(Real rate) { return rate < 10; }
  template <class Source>
  constexpr bool begin(Real rate, Source&, Real& result) {
    result = std::numeric_limits<Real>::quiet_NaN();
    limit = std::exp(-rate);
    return rate >= 0;
  }
  template <class Source>
  constexpr Step propose(Source& s) {
    s.draw();
    product *= s.second;
    if (product <= limit) return Step::taken;
    count += 1;
    return Step::refused;
  }
  constexpr bool settle() const { return true; }
  constexpr Real result() const { return count; }
  constexpr Real otherwise() const { return count; }
};

/// Poisson's of rates from 10 on: PTRS of Hoermann, "The transformed rejection method for generating Poisson random
/// variables", Insurance: Mathematics and Economics 12 (1993). Most proposals are decided by f32, with room for its
/// errors: what is too close to call is settled in double, so that each decision is the one that double makes.
template <std::same_as<double> Real>
struct PoissonRejection {
  static constexpr int kMost = kRounds;
  static constexpr int kEnough = 8;
  Real rate = 0, a = 0, b = 0, us = 0, v = 0, k = 0;
  float sure = 0;

  template <class Source>
  constexpr bool begin(Real given, Source&, Real& result) {
    result = given;  // NaN too
    if (!(given <= std::numeric_limits<Real>::max())) return false;
    rate = given, b = 0.931 + 2.53 * std::sqrt(given), a = -0.059 + 0.02483 * b;
    sure = 0.9277F - 3.6224F / static_cast<float>(b - 2);
    return true;
  }
  template <class Source>
  constexpr Step propose(Source& s) {
    s.draw();
    const Real u = s.first - 0.5;
    v = s.second, us = 0.5 - std::abs(u);
    k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && is_sure()) return Step::taken;
    if (k < 0 || (us < 0.013 && v > us)) return Step::refused;
    return nearly_settled();
  }
  /// v <= 0.9277 - 3.6224 / (b - 2), by `sure`, whose error is some 1e-7, where that tells.
  constexpr bool is_sure() const {
    const Real above = v - static_cast<Real>(sure);
    return std::abs(above) > 1e-5 ? above < 0 : v <= 0.9277 - 3.6224 / (b - 2);
  }
  /// settle() in f32. log(k!) is Stirling's with n = k + 1, and k log(rate) - (n - 1/2) log(n) is put so that large
  /// terms cancel before they are rounded.
  constexpr Step nearly_settled() const {
    if (k < 3 || k > 1e6) return Step::doubtful;
    const auto n = static_cast<float>(k + 1), more = static_cast<float>(rate - (k + 1));
    const float side = static_cast<float>(us), wide = static_cast<float>(b), over = quotient(1, n), r = over * over;
    const float inverse = 1.1239F + quotient(1.1328F, wide - 3.4F);
    const float spread = quotient(static_cast<float>(a), side * side) + wide;
    const float left = rough_log(quotient(static_cast<float>(v) * inverse, spread));
    const float terms = (n - 1) * std::log1p(more * over);
    const float right =
        terms - more - 0.5F * rough_log(n) - 0.91893853F - (1.0F / 12 - (1.0F / 360 - r * (1.0F / 1260)) * r) * over;
    const float room = 1e-5F + 1e-6F * (std::abs(terms) + std::abs(more) + std::abs(left));
    return std::abs(left - right) > room ? left <= right ? Step::taken : Step::refused : Step::doubtful;
  }
  constexpr bool settle() const {
    const Real inverse = 1.1239 + 1.1328 / (b - 3.4);
    return std::log(v * inverse / (a / (us * us) + b)) <= k * std::log(rate) - rate - log_factorial(k);
  }
  constexpr Real result() const { return k; }
  constexpr Real otherwise() const { return std::floor(rate); }
};

/// What a sampler makes of a with the numbers of a stream.
template <class Sampler, std::same_as<double> Real, class Source>
constexpr Real by_steps(Real a, Source& s) {
  Sampler sampler;
  Real result = 0;
  if (!sampler.begin(a, s, result)) return result;
  for (int round = 0; round < Sampler::kMost; ++round) {
    const Step step = sampler.propose(s);
    if (step == Step::taken || (step == Step::doubtful && sampler.settle())) return sampler.result();
  }
  return sampler.otherwise();
}
template <std::same_as<double> Real, class Source>
constexpr Real gamma(Real a, Source& s) {
  return by_steps<Gamma<Real>>(a, s);
}
template <std::same_as<double> Real, class Source>
constexpr Real poisson(Real rate, Source& s) {
  return PoissonProducts<Real>::takes(rate) ? by_steps<PoissonProducts<Real>>(rate, s)
                                            : by_steps<PoissonRejection<Real>>(rate, s);
}

/// Where e^-16 and less lies above a sample: the terms of gamma_slope()'s series cancel to that share of them.
template <std::same_as<double> Real>
constexpr bool is_far(Real a, Real x) {
  return x - a > 16 && a <= 1000 && x - a - a * std::log(x / a) > 16;
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
  const Real psi =
      std::log(n) - 0.5 / n -
      r * (1.0 / 12 -
           r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12)))))) -
      shift;
  if (is_far(a, x)) {
    // 1 - P is the density times S = 1 + (a - 1) / x (1 + (a - 2) / x (1 + ..)) (DLMF 8.11.2), so that the result is
    // (log x - psi(a)) S + dS/da.
    Real term = 1, term_a = 0, s = 1, s_a = 0;
    for (int i = 1; i < 400; ++i) {
      const Real last = std::abs(term) + std::abs(term_a);
      term_a = (term_a * (a - i) + term) / x;
      term *= (a - i) / x;
      const Real now = std::abs(term) + std::abs(term_a);
      if (i > a && now >= last) break;  // from here on the terms grow
      s += term;
      s_a += term_a;
      if (now < 1e-17 * s) break;
    }
    return (std::log(x) - psi + 1 / a) * s + s_a;
  }
  Real term = 1, slope = std::log(x) - psi, sum = slope;
  for (int i = 1; i < 10000; ++i) {
    term *= x / (a + i);
    slope -= 1 / (a + i);
    sum += term * slope;
    if (a + i > x && term * (std::abs(slope) + 1) < 1e-17 * std::abs(sum)) break;
  }
  return -sum * x / a;
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
