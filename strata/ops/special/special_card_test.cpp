// The special functions of cards (special_card_inl.h), compiled for the processor, beside those of special_inl.h in
// double: over their ranges and on both sides of where a formula ends.

#include "strata/ops/special/special_card_inl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace strata {
namespace {

// From low to high, side by side in their logarithms where both are positive.
std::vector<double> points(double low, double high, int n = 4001) {
  std::vector<double> r;
  for (int i = 0; i < n; ++i) {
    const double part = i / (n - 1.0);
    r.push_back(low > 0 ? low * std::pow(high / low, part) : low + (high - low) * part);
  }
  return r;
}

// The largest error in units of C's epsilon, relative to the value and, below it, to `scale`.
template <class C, class F, class G>
double worst(const std::vector<double>& at, F&& got, G&& want, double scale = 0) {
  double most = 0;
  for (const double p : at) {
    const C x = static_cast<C>(p);
    const double y = got(x), w = want(static_cast<double>(x));
    if (std::abs(w) > std::numeric_limits<C>::max() && y == std::copysign(kInf, w)) continue;
    const double off = std::abs(y - w) / (std::max(std::abs(w), scale) * std::numeric_limits<C>::epsilon());
    if (!(off <= most)) most = off;
  }
  return most;
}
template <class F, class G>
void expect_close(const std::vector<double>& at, F&& got, G&& want, double units, double scale = 0) {
  EXPECT_LE(worst<double>(at, got, want, scale), units) << "in f64, from " << at.front() << " to " << at.back();
  EXPECT_LE(worst<float>(at, got, want, scale), units) << "in f32, from " << at.front() << " to " << at.back();
}

TEST(SpecialOnCards, Digamma) {
  const auto got = [](auto x) { return card_digamma(x); };
  expect_close(points(1e-6, 1.4), got, digamma_of, 8, 0.1);
  expect_close(points(1.4, 1.6), got, digamma_of, 4, 0.1);
  expect_close(points(1.6, 40), got, digamma_of, 8, 0.5);
  expect_close(points(-3.9, -3.1), got, digamma_of, 8, 3);
  // Relative to itself around its zero.
  EXPECT_LE(worst<double>(points(1.45, 1.47, 101), got, digamma_of), 16);
  for (const double x : {-1.0, -30.0}) {
    EXPECT_TRUE(std::isnan(card_digamma(x)));
    EXPECT_TRUE(std::isnan(card_digamma(static_cast<float>(x))));
  }
  EXPECT_EQ(card_digamma(0.0), -kInf);
  EXPECT_EQ(card_digamma(-0.f), kInf);
  EXPECT_EQ(card_digamma(kInf), kInf);
  EXPECT_TRUE(std::isnan(card_digamma(-kInf)));
}

TEST(SpecialOnCards, Polygamma) {
  for (const int n : {1, 2, 3, 4, 7, 16}) {
    const double sign = n % 2 == 1 ? 1 : -1;
    const auto got = [&](auto x) { return card_polygamma<decltype(x)>(n, sign, x); };
    const auto want = [&](double x) { return polygamma_of(n, sign, x); };
    expect_close(points(0.02, 90), got, want, 40);
    if (n <= 4) expect_close(points(90, 2e6), got, want, 40);
    EXPECT_TRUE(std::isnan(got(std::numeric_limits<double>::quiet_NaN())));
  }
  const auto got = [](auto x) { return card_trigamma(x); };
  const auto want = [](double x) { return polygamma_of(1, 1, x); };
  expect_close(points(-2.9, -2.1), got, want, 40);
  for (const double x : {0.0, -0.0, -1.0, -30.0}) EXPECT_EQ(got(x), kInf) << x;
  EXPECT_TRUE(std::isnan(got(-kInf)));
}

TEST(SpecialOnCards, Zeta) {
  for (const float s : {1.05f, 1.5f, 2.f, 6.f, 30.f}) {
    const auto got = [&](float q) { return card_zeta(s, q); };
    const auto want = [&](double q) { return zeta_of(s, q); };
    EXPECT_LE(worst<float>(points(0.05, 20), got, want), 8 + 2 * s) << s;  // the sums q + k are rounded
  }
  EXPECT_EQ(card_zeta(1, 2), static_cast<float>(kInf));
  EXPECT_TRUE(std::isnan(card_zeta(0.5f, 2)));
}

TEST(SpecialOnCards, IncompleteGamma) {
  for (const double a : {0.01, 0.3, 1.0, 2.5, 6.0, 19.0, 21.0, 60.0, 150.0, 250.0})
    for (const bool upper : {false, true}) {
      const auto got = [&](auto x) { return card_incomplete_gamma(static_cast<decltype(x)>(a), x, upper); };
      const auto single = [&](double x) { return incomplete_gamma(static_cast<float>(a), x, upper); };
      const auto want = [&](double x) { return incomplete_gamma(a, x, upper); };
      const auto at = points(std::max(1e-3, a / 8), a * 2 + 4, 801);
      // Of exp(-x + a log(x)) the digits are those of its exponent.
      EXPECT_LE(worst<double>(at, got, want, 1e-3), 2000) << a;
      EXPECT_LE(worst<float>(at, got, single, 1e-3), 32) << a;
    }
  EXPECT_TRUE(std::isnan(card_incomplete_gamma(-1.0, 1.0, false)));
  EXPECT_EQ(card_incomplete_gamma(2.f, 0.f, true), 1);
}

TEST(SpecialOnCards, LogarithmsAndSinc) {
  expect_close(
      points(1e-6, 1 - 1e-6), [](auto x) { return card_logit(x, decltype(x)(-1)); }, logit_of, 4, 0.5);
  expect_close(
      points(1e-6, 30), [](auto x) { return card_entr(x); }, entr_of, 4, 0.1);
  expect_close(
      points(-9.5, 9.5), [](auto x) { return card_sinc(x); }, sinc_of, 8, 0.1);
  EXPECT_EQ(card_sinc(0.f), 1);
  EXPECT_EQ(card_sinc(-7.0), 0);
  EXPECT_EQ(card_entr(0.f), 0);
  EXPECT_EQ(card_entr(-1.0), -kInf);
  EXPECT_EQ(card_logit(0.01f, 0.125f), card_logit(0.125f, -1.f));
}

TEST(SpecialOnCards, ModifiedBessel) {
  for (const int n : {0, 1, 2}) {
    const auto scaled = [&](auto x) { return card_bessel_i(n, x, true); };
    const auto scaled_want = [&](double x) { return scaled_bessel_i(n, x); };
    const auto plain = [&](auto x) { return card_bessel_i(n, x, false); };
    const auto plain_want = [&](double x) { return bessel_i(n, x); };
    for (const auto& at : {points(-8.1, 8.1), points(1e-3, 700)}) expect_close(at, scaled, scaled_want, 16, 1e-10);
    expect_close(points(-8.1, 8.1), plain, plain_want, 16, 1e-10);
    EXPECT_LE(worst<double>(points(7, 700), plain, plain_want), 400);  // both multiply powers of e
    EXPECT_LE(worst<float>(points(7, 80), plain, plain_want), 100);
    EXPECT_EQ(scaled(kInf), 0);
    EXPECT_EQ(plain(kInf), kInf);
    EXPECT_EQ(plain(1e13), kInf);
    EXPECT_TRUE(std::isnan(plain(std::numeric_limits<float>::quiet_NaN())));
  }
  EXPECT_EQ(card_bessel_i(1, -1e13f, false), -static_cast<float>(kInf));
  for (const int n : {0, 1}) {
    const auto scaled = [&](auto x) { return card_bessel_k(n, x, true); };
    const auto want = [&](double x) { return scaled_bessel_k(n, x); };
    expect_close(points(1e-6, 1000), scaled, want, 24);
    expect_close(points(1.9, 2.1), scaled, want, 24);
    const auto plain = [&](auto x) { return card_bessel_k(n, x, false); };
    expect_close(
        points(1e-3, 80), plain, [&](double x) { return want(x) * std::exp(-x); }, 40);
    EXPECT_EQ(scaled(0.0), kInf);
    EXPECT_EQ(scaled(kInf), 0);
    EXPECT_EQ(plain(1e13), 0);
    EXPECT_TRUE(std::isnan(plain(-1.f)));
  }
}

TEST(SpecialOnCards, Bessel) {
  for (const int n : {0, 1, 3}) {
    const auto first = [&](auto x) { return card_bessel<false>(n, x); };
    const auto first_want = [&](double x) { return bessel_j(n, x); };
    // Of large arguments what is between zeros, which shrinks with the root.
    for (const auto& at : {points(-8.1, 8.1), points(1e-3, 100), points(7.9, 8.1), points(-2.1, 2.1, 100001)})
      EXPECT_LE(worst<float>(at, first, first_want, 0.05), 2) << n;
    EXPECT_LE(worst<float>(points(100, 2e6), first, first_want, 5e-4), 2) << n;
    EXPECT_EQ(first(static_cast<float>(kInf)), 0);
    EXPECT_EQ(first(0.f), n == 0 ? 1 : 0);
    EXPECT_EQ(first(2.5), bessel_j(n, 2.5));
    EXPECT_TRUE(std::isnan(first(std::numeric_limits<float>::quiet_NaN())));
    if (n > 1) continue;
    const auto second = [&](auto x) { return card_bessel<true>(n, x); };
    const auto second_want = [&](double x) { return bessel_y(n, x); };
    for (const auto& at : {points(1e-30, 1e-3), points(1e-3, 100), points(0.8, 0.99), points(7.9, 8.1)})
      EXPECT_LE(worst<float>(at, second, second_want, 0.05), 2) << n;
    EXPECT_LE(worst<float>(points(100, 2e6), second, second_want, 5e-4), 2) << n;
    EXPECT_EQ(second(0.f), -static_cast<float>(kInf));
    EXPECT_EQ(second(static_cast<float>(kInf)), 0);
    EXPECT_EQ(second(2.5), bessel_y(n, 2.5));
    EXPECT_TRUE(std::isnan(second(-1.f)));
    EXPECT_TRUE(std::isnan(second(std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(SpecialOnCards, SphericalBesselAndAiry) {
  for (const int n : {0, 1, 3})
    expect_close(
        points(-12, 12, 4000), [&](auto x) { return card_spherical_j(n, x); },
        [&](double x) { return spherical_bessel_j(n, x); }, 8, 0.3);
  EXPECT_LE(worst<float>(
                points(-2.1, 2.1, 100001), [](auto x) { return card_spherical_j(0, x); },
                [](double x) { return spherical_bessel_j(0, x); }),
            2);
  EXPECT_LE(worst<double>(
                points(1e-9, 1.1), [](double x) { return card_spherical_j(1, x); },
                [](double x) { return spherical_bessel_j(1, x); }),
            16);
  for (const bool derivative : {false, true}) {
    const auto got = [&](auto x) { return card_airy(x, derivative); };
    const auto want = [&](double x) { return airy(x, derivative); };
    expect_close(points(-10.2, 10.2), got, want, 8, 0.3);
    EXPECT_LE(worst<double>(points(2, 10), got, want), 64);
    EXPECT_LE(worst<float>(points(2, 10), got, want), 64);
    EXPECT_TRUE(std::isnan(got(std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(SpecialOnCards, Polynomials) {
  for (int family = 0; family < 12; ++family)
    for (const int derivative : {0, 1, 2})
      for (const int n : {-1, 0, 1, 2, 5, 16, 17, 32, 33, 40}) {
        const auto got = [&](auto x) { return card_polynomial<decltype(x)>(family, derivative, x, n); };
        const auto want = [&](double x) { return orthogonal_polynomial(family, derivative, x, n); };
        double scale = 1;
        for (const double x : points(0.05, 0.95, 101)) scale = std::max(scale, std::abs(want(x)));
        for (const double units : {worst<double>(points(0.05, 0.95, 101), got, want, scale),
                                   worst<float>(points(0.05, 0.95, 101), got, want, scale)})
          EXPECT_LE(units, 128) << family << ' ' << derivative << ' ' << n;
      }
  EXPECT_TRUE(std::isnan(card_polynomial<double>(kHermiteH, 0, 0.5, 1e15)));
  EXPECT_TRUE(std::isnan(card_polynomial<double>(kLegendre, 1, 0.5, std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace strata
