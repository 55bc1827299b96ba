// What the generated tests cannot know: that samples follow their distributions, that no parameter hangs, and that the
// gradient of gamma numbers is right.

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/ops/distributions/distributions.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr int64_t kMany = 200000;

void expect_moments(const Tensor& x, double mean_wanted, double var_wanted) {
  const double n = static_cast<double>(x.numel()), error = 6 * std::sqrt(var_wanted / n);
  EXPECT_NEAR(mean(x).item(), mean_wanted, error);
  EXPECT_NEAR(var(x).item(), var_wanted, 0.06 * var_wanted);
}
Tensor many(double value) {
  return full({kMany}, value, DType::f64);
}

TEST(Samplers, GammaHasItsMoments) {
  manual_seed(3);
  for (const double a : {0.3, 1.0, 2.5, 40.0}) expect_moments(standard_gamma(many(a)), a, a);
}

TEST(Samplers, PoissonHasItsMoments) {
  manual_seed(4);
  for (const double rate : {0.5, 9.5, 10.5, 300.0}) expect_moments(poisson(many(rate)), rate, rate);
}

TEST(Samplers, BinomialHasItsMoments) {
  manual_seed(5);
  for (const double n : {4.0, 30.0, 1000.0})
    for (const double p : {0.1, 0.5, 0.9}) expect_moments(binomial(many(n), many(p)), n * p, n * p * (1 - p));
  EXPECT_EQ(amax(binomial(many(7), many(1))).item(), 7);
  EXPECT_EQ(amin(binomial(many(7), many(1))).item(), 7);
  EXPECT_EQ(amax(binomial(many(7), many(0))).item(), 0);
}

// Shares of small counts against the distribution itself.
TEST(Samplers, PoissonHasItsProbabilities) {
  manual_seed(6);
  for (const double rate : {2.0, 12.0}) {
    const std::vector<double> x = poisson(many(rate)).to_vector<double>();
    std::vector<double> share(60);
    for (const double v : x) share.at(static_cast<size_t>(v)) += 1.0 / kMany;
    for (int k = 0; k < 30; ++k) {
      const double p = std::exp(k * std::log(rate) - rate - std::lgamma(k + 1.0));
      EXPECT_NEAR(share[static_cast<size_t>(k)], p, 6 * std::sqrt(p / kMany) + 1e-5) << k;
    }
  }
}

TEST(Samplers, NonsenseGivesNaNAndEnds) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, -inf}) {
    EXPECT_TRUE(std::isnan(standard_gamma(full({1}, bad)).item()));
    EXPECT_TRUE(std::isnan(poisson(full({1}, bad)).item()));
    EXPECT_TRUE(std::isnan(binomial(full({1}, bad), full({1}, 0.5)).item()));
    EXPECT_TRUE(std::isnan(binomial(full({1}, 5.0), full({1}, bad)).item()));
  }
  EXPECT_EQ(standard_gamma(full({1}, inf)).item(), inf);
  EXPECT_EQ(standard_gamma(full({1}, 0.0)).item(), 0);
  EXPECT_TRUE(std::isnan(binomial(full({1}, inf), full({1}, 0.5)).item()));
  EXPECT_TRUE(std::isfinite(poisson(full({1}, 1e12, DType::f64)).item()));
  EXPECT_TRUE(std::isfinite(standard_gamma(full({1}, 1e-300, DType::f64)).item()));
}

// The mean of samples is the concentration, so the mean of their derivatives is 1.
TEST(Samplers, GradientOfGammaAveragesToOne) {
  manual_seed(7);
  for (const double a : {0.5, 3.0, 50.0, 2000.0}) {
    Tensor shape = many(a);
    shape.set_requires_grad();
    mean(standard_gamma(shape)).backward();
    EXPECT_NEAR(shape.grad().sum().item(), 1, 0.02) << a;
  }
}

TEST(Samplers, DirichletHasItsMeans) {
  manual_seed(8);
  const Tensor a = from_span<double>(std::vector<double>{0.5, 1, 3.5}, {3}).expand({20000, 3});
  const std::vector<double> m = mean(dirichlet(a), {0}).to_vector<double>();
  EXPECT_NEAR(m[0], 0.1, 0.01);
  EXPECT_NEAR(m[1], 0.2, 0.01);
  EXPECT_NEAR(m[2], 0.7, 0.01);
}

TEST(Samplers, EqualSeedsGiveEqualNumbers) {
  manual_seed(9);
  const std::vector<float> first = standard_gamma(full({500}, 2.0)).to_vector<float>();
  manual_seed(9);
  EXPECT_EQ(standard_gamma(full({500}, 2.0)).to_vector<float>(), first);
  EXPECT_NE(standard_gamma(full({500}, 2.0)).to_vector<float>(), first);
}

}  // namespace
}  // namespace strata
