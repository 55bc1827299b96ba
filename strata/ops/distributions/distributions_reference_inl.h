#pragma once
// References of the samplers. Which numbers a sampler draws is its own affair; that they follow their distribution is
// not: each is a test of Kolmogorov and Smirnov on some thousand of the op's own numbers against the closed form of the
// distribution function, that throws where they do not.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/view/view.h"

namespace strata::by_distribution {

/// P(a, x), the share of gamma numbers below x, by Simpson's rule over t = x s^4, which is smooth at 0.
inline double gamma_below(double a, double x) {
  constexpr int kSteps = 400;
  if (x <= 0) return 0;
  double sum = std::exp(-x);
  for (int i = 1; i < kSteps; ++i) {
    const double s = static_cast<double>(i) / kSteps;
    sum += (i % 2 == 0 ? 2 : 4) * std::exp((4 * a - 1) * std::log(s) - x * s * s * s * s);
  }
  return 4 * std::exp(a * std::log(x) - std::lgamma(a)) * sum / (3 * kSteps);
}
inline double poisson_of(double rate, double k) {
  return rate == 0 ? k == 0 : std::exp(k * std::log(rate) - rate - std::lgamma(k + 1));
}
inline double binomial_of(double n, double p, double k) {
  if (p <= 0 || p >= 1) return k == (p <= 0 ? 0 : n);
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) +
                  (n - k) * std::log(1 - p));
}
/// The share of whole numbers below k, and of a part of those at k.
template <class F>
double whole_below(double k, double part, F probability) {
  double sum = part * probability(k);
  for (double i = 0; i < k; ++i) sum += probability(i);
  return sum;
}

/// ValueError unless `shares` look like uniform numbers: a true sampler fails once in a million keys.
inline void expect_uniform(std::vector<double> shares, std::string_view op) {
  std::sort(shares.begin(), shares.end());
  const auto n = static_cast<double>(shares.size());
  double furthest = 0;
  for (size_t i = 0; i < shares.size(); ++i)
    furthest = std::max({furthest, shares[i] - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - shares[i]});
  check(!(furthest * std::sqrt(n) > 2.7), op, "the numbers do not follow their distribution: its function and that of ",
        shares.size(), " of them differ by ", furthest);
}

/// Draws about 4000 numbers, each argument as often as needed, hands number and place of the argument to share(), which
/// says how large a share of the distribution lies below, and tests those. Returns what the op draws for `x` itself.
template <class Draw, class Share>
Tensor tested(const Tensor& x, std::string_view op, Draw draw, Share share) {
  if (x.numel() == 0) return draw(x.shape());
  Shape many = x.shape();
  many.insert(0, std::max<int64_t>(1, 4000 / x.numel()));
  const std::vector<double> numbers = draw(many).template to_vector<double>();
  std::vector<double> shares;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = philox({1234, 0}, i);
    shares.push_back(share(numbers[i], i % static_cast<size_t>(x.numel()), uniform_f64(bits[0], bits[1])));
  }
  expect_uniform(std::move(shares), op);
  return draw(x.shape());
}

}  // namespace strata::by_distribution
