#pragma once
// Orthogonal polynomials of a whole order and their derivatives. Needs special_inl.h; see there.

#include "strata/ops/special/special_inl.h"

namespace strata {
namespace {

/// The families, in the order of orthogonal_polynomial()'s names (polynomials.cpp); 4 to 7 are 0 to 3 of 2x - 1.
enum PolynomialFamily {
  kChebyshevT,
  kChebyshevU,
  kChebyshevV,
  kChebyshevW,
  kHermiteH = 8,
  kHermiteHe,
  kLaguerre,
  kLegendre
};

constexpr int kMostDerivatives = 8;
// Orders above which there is no recurrence, which takes a step for each.
constexpr double kMostSteps = 100000;

// Chebyshev's by the angle, -1 <= x <= 1, or its hyperbolic twin above 1: DLMF 18.5.
STRATA_SPECIAL double chebyshev_by_angle(int family, double x, double n) {
  const bool odd = std::fmod(n, 2) != 0;
  if (x < -0.5) {  // near -1 the angle would be rounded
    const int mirrored = family == kChebyshevV ? kChebyshevW : family == kChebyshevW ? kChebyshevV : family;
    const double y = chebyshev_by_angle(mirrored, -x, n);
    return odd ? -y : y;
  }
  if (x <= 1) {
    const double t = 2 * std::asin(std::sqrt((1 - x) / 2));
    if (family == kChebyshevT) return std::cos(n * t);
    if (family == kChebyshevV) return std::cos((n + 0.5) * t) / std::cos(t / 2);
    if (t == 0) return family == kChebyshevU ? n + 1 : 2 * n + 1;
    return family == kChebyshevU ? std::sin((n + 1) * t) / std::sin(t) : std::sin((n + 0.5) * t) / std::sin(t / 2);
  }
  const double t = 2 * std::asinh(std::sqrt((x - 1) / 2));
  if (family == kChebyshevT) return std::cosh(n * t);
  if (family == kChebyshevU) return std::sinh((n + 1) * t) / std::sinh(t);
  if (family == kChebyshevV) return std::cosh((n + 0.5) * t) / std::cosh(t / 2);
  return std::sinh((n + 0.5) * t) / std::sinh(t / 2);
}

// Legendre's of a large order: Hilb's formula with its second term (DLMF 18.15.6, alpha = beta = 0, error below n^-2).
STRATA_SPECIAL double large_legendre(double x, double n) {
  if (x < 0) return std::fmod(n, 2) != 0 ? -large_legendre(-x, n) : large_legendre(-x, n);
  const double big = n + 0.5;
  if (x <= 1) {
    const double t = 2 * std::asin(std::sqrt((1 - x) / 2));
    if (t < 1e-150) return 1;
    const double s = std::sin(t), second = t < 1e-4 ? -t / 3 : std::cos(t) / s - 1 / t;
    return std::sqrt(t / s) * (::j0(big * t) + second / 8 * ::j1(big * t) / big);
  }
  const double t = 2 * std::asinh(std::sqrt((x - 1) / 2));
  const double s = std::sinh(t), second = t < 1e-4 ? t / 3 : std::cosh(t) / s - 1 / t;
  return std::sqrt(t / s) * (bessel_i(0, big * t) - second / 8 * bessel_i(1, big * t) / big);
}

// The `derivative`-th derivative in x of the polynomial of order n, whose fraction is dropped; 0 below 0. By the
// recurrence of the three orders (DLMF 18.9.1), differentiated; NaN where that overflows on the way, and for
// Hermite's, Laguerre's and derivatives of orders above 100000.
STRATA_SPECIAL double orthogonal_polynomial(int family, int derivative, double x, double order) {
  if (x != x || order != order) return STRATA_SPECIAL_NAN;
  const double n = std::trunc(order);
  if (n < 0) return 0;
  double chain = 1;
  if (family >= 4 && family < 8) {
    family -= 4;
    x = 2 * x - 1;
    for (int i = 0; i < derivative; ++i) chain *= 2;
  }
  if (family < 4 && n > 32 && derivative == 0) return chebyshev_by_angle(family, x, n);
  if (n > kMostSteps) return family == kLegendre && derivative == 0 ? large_legendre(x, n) : STRATA_SPECIAL_NAN;
  if (family < 4 && derivative == 0) {
    if (n == 0) return 1;
    double below = 1, here = family == kChebyshevT   ? x
                             : family == kChebyshevV ? 2 * x - 1
                                                     : 2 * x + (family == kChebyshevW);
    for (int k = 1; k < static_cast<int>(n); ++k) {
      const double next = 2 * x * here - below;
      below = here;
      here = next;
    }
    return here;
  }
  // Derivatives 0 to `derivative` of the orders k - 1 and k.
  double before[kMostDerivatives] = {}, now[kMostDerivatives] = {};
  now[0] = 1;
  for (int k = 0; k < static_cast<int>(n); ++k) {
    // p_(k+1) = (a x + b) p_k - c p_(k-1)
    double a = 2, b = 0, c = 1;
    if (family == kHermiteH) {
      c = 2.0 * k;
    } else if (family == kHermiteHe) {
      a = 1;
      c = k;
    } else if (family == kLaguerre) {
      a = -1.0 / (k + 1);
      b = (2.0 * k + 1) / (k + 1);
      c = static_cast<double>(k) / (k + 1);
    } else if (family == kLegendre) {
      a = (2.0 * k + 1) / (k + 1);
      c = static_cast<double>(k) / (k + 1);
    } else if (k == 0) {
      a = family == kChebyshevT ? 1 : 2;
      b = family == kChebyshevV ? -1 : family == kChebyshevW ? 1 : 0;
    }
    for (int m = derivative; m >= 0; --m) {
      const double lower = m > 0 ? m * a * now[m - 1] : 0, next = (a * x + b) * now[m] + lower - c * before[m];
      before[m] = now[m];
      now[m] = next;
    }
    if (now[0] != now[0]) return STRATA_SPECIAL_NAN;
  }
  return chain * now[derivative];
}

}  // namespace
}  // namespace strata
