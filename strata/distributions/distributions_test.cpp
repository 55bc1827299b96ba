// Densities against integrals, samples against moments, divergences against integrals, and what is refused.

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/recording.h"
#include "strata/cuda/runtime.h"
#include "strata/distributions/formulas_inl.h"
#include "strata/distributions/make.h"
#include "strata/ops/ops.h"

namespace strata::distributions {
namespace {

namespace dist = strata::distributions;  // beside the ops of these names

Tensor t(const std::vector<double>& v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())});
}
Tensor t(double v) {
  return strata::full({}, v, DType::f64);
}
Tensor matrix(const std::vector<double>& v, int64_t n) {
  return from_span<double>(v, {n, static_cast<int64_t>(v.size()) / n});
}
double value(const Tensor& x) {
  return x.item<double>();
}
// The integral of y over a grid from low to high, by Simpson's rule.
double integral(const Tensor& y, double low, double high) {
  const std::vector<double> v = y.to_vector<double>();
  const size_t n = v.size() - 1;
  double s = v[0] + v[n];
  for (size_t i = 1; i < n; ++i) s += (i % 2 ? 4 : 2) * v[i];
  return s * (high - low) / static_cast<double>(n) / 3;
}
Tensor grid(double low, double high) {
  return linspace(low, high, 200001, DType::f64);
}

// Distributions over numbers, with an interval that holds all but a little of them.
struct Line {
  Distribution d;
  double low, high;
  bool moments = true;  // they are finite and the interval has them
};
std::vector<Line> lines() {
  return {
      {normal(t(0.5), 1.3), -12, 12},
      {laplace(t(0.3), 0.7), -25, 25},
      {cauchy(t(0.3), 0.7), -3000, 3000, false},
      {gumbel(t(0.3), 0.7), -5, 30},
      {student_t(t(6.0), 0.5, 1.2), -400, 400},
      {uniform(t(-1.0), 2.0), -1, 2 - 1e-12},
      {von_mises(t(0.4), 2.5), -M_PI, M_PI, false},
      {log_normal(t(0.1), 0.4), 1e-6, 25},
      {half_normal(t(1.2)), 0, 15},
      {half_cauchy(t(0.4)), 0, 3000, false},
      {exponential(t(1.7)), 0, 30},
      {gamma(t(2.5), 1.7), 1e-9, 30},
      {chi2(t(4.0)), 1e-9, 90},
      {inverse_gamma(t(5.0), 3.0), 1e-3, 300},
      {fisher_snedecor(t(6.0), 12.0), 1e-6, 400},
      {weibull(t(1.3), 2.1), 1e-9, 12},
      {pareto(t(1.3), 7.0), 1.3, 150},
      {generalized_pareto(t(0.4), 1.1, 0.1), 0.4, 300},
      {generalized_pareto(t(0.4), 1.1, -0.4), 0.4, 0.4 + 1.1 / 0.4 - 1e-9},
      {generalized_pareto(t(0.4), 1.1, 0.0), 0.4, 50},
      {beta(t(2.0), 3.0), 1e-9, 1 - 1e-9},
      {kumaraswamy(t(2.0), 3.5), 1e-9, 1 - 1e-9},
      {continuous_bernoulli(t(0.3)), 0, 1},
      {continuous_bernoulli(t(0.5)), 0, 1},
      {relaxed_bernoulli(t(0.7), 0.3), 1e-7, 1 - 1e-7, false},
  };
}

// torch.distributions.ContinuousBernoulli (2.15) with lims (0.4, 0.6): the series at 0.45, the formulas at 0.3.
TEST(Distributions, TheLimitsOfASeriesAreGiven) {
  const Tensor probs = from_span<double>(std::vector<double>{0.45, 0.3}, {2});
  const Tensor lims = from_span<double>(std::vector<double>{0.4, 0.6}, {2});
  const Distribution d = make("ContinuousBernoulli", {{"probs", probs}, {"lims", lims}});
  const auto expect = [](const Tensor& found, double first, double second) {
    EXPECT_NEAR(found.to_vector<double>()[0], first, 1e-12);
    EXPECT_NEAR(found.to_vector<double>()[1], second, 1e-12);
  };
  expect(d.log_prob(full({2}, 0.2, DType::f64)), 0.05852381848967225, 0.2244532348642858);
  expect(d.mean(), 0.4832888888888889, 0.43022250114382865);
  expect(d.variance(), 0.08316751322751323, 0.08042515220619428);
  expect(d.cdf(full({2}, 0.3, DType::f64)), 0.3, 0.3927963682754365);
  expect(d.icdf(full({2}, 0.3, DType::f64)), 0.3, 0.22194347501007775);
  expect(d.entropy(), -0.0016760401396388458, -0.02938620223212912);
  // The pair decides about no dtype, and has a default.
  const Distribution single = make("ContinuousBernoulli", {{"probs", 0.3}, {"lims", lims}});
  EXPECT_EQ(single.parameter("lims").dtype(), DType::f32);
  EXPECT_EQ(single.batch_shape(), Shape());
  expect(make("ContinuousBernoulli", {{"probs", probs}}).parameter("lims"), 0.499, 0.501);
  EXPECT_THROW(make("ContinuousBernoulli", {{"probs", probs}, {"lims", 0.4}}), ShapeError);
  EXPECT_THROW(make("ContinuousBernoulli", {{"probs", probs}, {"lims", lims * 2}}), ValueError);
}

TEST(Distributions, DensitiesIntegrateToOne) {
  for (const Line& c : lines()) {
    SCOPED_TRACE(c.d.name());
    const Tensor x = grid(c.low, c.high), log_p = c.d.log_prob(x), p = log_p.exp();
    const double tail = c.moments ? 1e-5 : 2e-3;
    EXPECT_NEAR(integral(p, c.low, c.high), 1, tail);
    if (c.d.has(Function::entropy) && c.d.name() != "Cauchy" && c.d.name() != "HalfCauchy") {
      EXPECT_NEAR(value(c.d.entropy()), -integral(where(p > 0, p * log_p, 0.0), c.low, c.high), 1e-3);
    }
    if (!c.moments) continue;
    const double mean = integral(p * x, c.low, c.high);
    EXPECT_NEAR(value(c.d.mean()), mean, 2e-4);
    EXPECT_NEAR(value(c.d.variance()), integral(p * square(x - mean), c.low, c.high), 2e-3);
    EXPECT_NEAR(value(c.d.stddev()), std::sqrt(value(c.d.variance())), 1e-12);
  }
}

TEST(Distributions, SharesBelow) {
  for (const Line& c : lines()) {
    SCOPED_TRACE(c.d.name());
    if (c.d.has(Function::cdf)) {
      const double middle = c.low + 0.4 * std::min(c.high - c.low, 3.0) + (c.low < -10 ? -c.low : 0);
      const double below = integral(c.d.log_prob(grid(c.low, middle)).exp(), c.low, middle);
      EXPECT_NEAR(value(c.d.cdf(t(middle))), below, c.moments ? 1e-5 : 1e-3);
    }
    if (!c.d.has(Function::icdf)) continue;
    const Tensor q = t({0.05, 0.3, 0.5, 0.9});
    EXPECT_TRUE(allclose(c.d.cdf(c.d.icdf(q)), q, 1e-9, 1e-9)) << c.d.cdf(c.d.icdf(q)).to_string();
  }
}

TEST(Distributions, ModesAreTheLikeliest) {
  for (const Line& c : lines()) {
    if (!c.d.has(Function::mode) || std::isnan(value(c.d.mode()))) continue;
    SCOPED_TRACE(c.d.name());
    const double best = value(c.d.log_prob(c.d.mode()));
    EXPECT_GE(best, value(c.d.log_prob(grid(c.low, c.high)).max()) - 1e-6);
  }
}

// Of the mean of n draws, five standard errors; the bound of the variance is honest for tails as heavy as these.
TEST(Distributions, SamplesHaveTheMoments) {
  constexpr int64_t n = 40000;
  uint64_t seed = 1;
  for (const Line& c : lines()) {
    SCOPED_TRACE(c.d.name());
    Generator g(++seed), again(seed);
    const Tensor x = c.d.sample({n}, g);
    EXPECT_EQ(x.shape(), (Shape{n}));
    EXPECT_TRUE(equal(x, c.d.sample({n}, again)));
    EXPECT_TRUE(all(c.d.support().check(x)).item<bool>());
    // Quantiles of the samples against the integral: for every family, with or without moments.
    const Tensor sorted = std::get<0>(sort(x));
    for (const double share : {0.25, 0.5, 0.8}) {
      const double at = value(sorted.select(0, static_cast<int64_t>(share * n)));
      const double below = integral(c.d.log_prob(grid(c.low, at)).exp(), c.low, at);
      EXPECT_NEAR(below, share, 5 * std::sqrt(share * (1 - share) / n) + 2e-3);
    }
    if (!c.moments) continue;
    const double variance = value(c.d.variance());
    EXPECT_NEAR(value(x.mean()), value(c.d.mean()), 5 * std::sqrt(variance / n));
    EXPECT_NEAR(value(var(x)) / variance, 1, 0.12);
  }
}

template <class F>
void expect_gradient(const F& f, const TensorList& values) {
  const GradcheckResult r = gradcheck(f, values);
  EXPECT_TRUE(r.ok) << r.report;
}

TEST(Distributions, GradientsOfDensities) {
  for (const Line& c : lines()) {
    SCOPED_TRACE(c.d.name());
    const auto& base = dynamic_cast<const RecordedDistribution&>(c.d.base());
    std::vector<std::string> names;
    TensorList values;
    for (const Parameter& p : base.args().record().parameters) {
      const int64_t i = base.args().record().index(p.name);
      if (!base.args().given(static_cast<size_t>(i))) continue;
      names.emplace_back(p.name);
      values.push_back(c.d.parameter(p.name).detach().clone().set_requires_grad());
    }
    Generator g(7);
    const Tensor x = c.d.sample({3}, g);
    const std::string family = c.d.name();
    const auto made = [&](const TensorList& v) {
      std::vector<std::pair<std::string, Given>> given;
      for (size_t i = 0; i < v.size(); ++i) given.emplace_back(names[i], v[i]);
      return make(family, given, false);
    };
    expect_gradient([&](const TensorList& v) { return made(v).log_prob(x); }, values);
    if (!c.d.has(Function::rsample)) continue;
    // With the same noise samples are smooth functions of the parameters; gamma numbers are drawn by rejection.
    static const std::set<std::string> kRejected{"Gamma", "Chi2", "InverseGamma", "FisherSnedecor", "StudentT", "Beta"};
    if (kRejected.contains(family)) continue;
    expect_gradient(
        [&](const TensorList& v) {
          Generator same(9);
          return made(v).rsample({3}, same);
        },
        values);
  }
}

TEST(Distributions, ImplicitGradientsOfSamples) {
  constexpr int64_t n = 40000;
  const Tensor a = t(2.0).set_requires_grad();
  Generator g(3);
  const Tensor gradient = grad({gamma(a, 2.0).rsample({n}, g).mean()}, {a})[0];
  EXPECT_NEAR(value(gradient), 0.5, 0.02);  // of a / rate
  const Tensor b = t(3.0).set_requires_grad();
  const Tensor inverse = grad({inverse_gamma(t(6.0), b).rsample({n}, g).mean()}, {b})[0];
  EXPECT_NEAR(value(inverse), 0.2, 0.01);  // of rate / (a - 1)
}

TEST(Distributions, CountsSumToOne) {
  const std::vector<Distribution> all = {dist::bernoulli(t(0.3)),        geometric(t(0.3)),
                                         dist::poisson(t(3.5)),          dist::binomial(t(7.0), 0.4),
                                         negative_binomial(t(3.5), 0.4), categorical(t({1, 2, 3}))};
  for (const Distribution& d : all) {
    SCOPED_TRACE(d.name());
    Tensor x = strata::arange(0, 200, 1, DType::f64);
    if (d.has(Function::enumerate_support)) {
      x = d.enumerate_support();
    } else {
      EXPECT_THROW(d.enumerate_support(), NotDefined);
    }
    const Tensor log_p = d.log_prob(x), p = log_p.exp();
    EXPECT_NEAR(value(sum(p)), 1, 1e-9);
    if (d.has(Function::entropy)) {
      EXPECT_NEAR(value(d.entropy()), -value(sum(where(p > 0, p * log_p, 0.0))), 1e-9);
    }
    if (d.has(Function::mode)) {
      EXPECT_NEAR(value(d.log_prob(d.mode())), value(log_p.max()), 1e-9);
    }
    Generator g(5);
    const Tensor drawn = d.sample({40000}, g).to(DType::f64);
    const double mean = value(sum(p * x)), variance = value(sum(p * square(x - mean)));
    EXPECT_NEAR(value(drawn.mean()), mean, 5 * std::sqrt(variance / 40000));
    EXPECT_NEAR(value(var(drawn)) / variance, 1, 0.08);
    if (d.name() == "Categorical") continue;
    EXPECT_NEAR(value(d.mean()), mean, 1e-9);
    EXPECT_NEAR(value(d.variance()), variance, 1e-7);
  }
}

TEST(Distributions, Vectors) {
  Generator g(11);
  constexpr int64_t n = 40000;
  // Every family of vectors: means and variances of samples.
  const Tensor covariance = matrix({1.5, 0.4, 0.4, 0.8}, 2);
  const std::vector<Distribution> all = {
      dist::dirichlet(t({2.0, 1.0, 3.5})),
      multivariate_normal(t({0.5, -1.0}), covariance),
      low_rank_multivariate_normal(t({0.5, -1.0, 2.0}), matrix({0.5, 1.0, -0.3}, 3), t({0.6, 0.7, 0.8})),
      one_hot_categorical(t({1, 2, 3})),
      one_hot_categorical_straight_through(t({1, 2, 3})),
      dist::multinomial(5.0, t({1, 2, 3})),
      wishart(t(5.0), covariance),
  };
  for (const Distribution& d : all) {
    SCOPED_TRACE(d.name());
    const Tensor x = d.sample({n}, g);
    EXPECT_TRUE(strata::all(d.support().check(x)).item<bool>());
    EXPECT_TRUE(allclose(x.mean({0}), d.mean(), 0.02, 0.03)) << x.mean({0}).to_string() << d.mean().to_string();
    EXPECT_TRUE(allclose(var(x, {0}), d.variance(), 0.05, 0.02)) << var(x, {0}).to_string();
    EXPECT_EQ(d.log_prob(x).shape(), (Shape{n}));
    // The entropy is the mean of -log p.
    if (d.has(Function::entropy)) {
      EXPECT_NEAR(value(d.entropy()), -value(d.log_prob(x).mean()), 5 * value(std(d.log_prob(x))) / 200 + 1e-9);
    }
    const Distribution more = d.expand({4, 3});
    EXPECT_EQ(more.sample({2}).shape().size(), 3 + d.event_shape().size());
    EXPECT_TRUE(allclose(more.log_prob(x.select(0, 0)).select(0, 0).select(0, 0), d.log_prob(x.select(0, 0))));
  }
  // The other ways to give a covariance.
  const Distribution a = multivariate_normal(t({0.5, -1.0}), covariance);
  for (const auto& [name, m] : {std::pair<std::string, Tensor>{"precision_matrix", linalg_inv(covariance)},
                                {"scale_tril", linalg_cholesky(covariance)}}) {
    const Distribution b = make("MultivariateNormal", {{"loc", t({0.5, -1.0})}, {name, m}});
    EXPECT_TRUE(allclose(a.log_prob(t({1, 1})), b.log_prob(t({1, 1})), 1e-9)) << name;
    EXPECT_TRUE(allclose(b.parameter("covariance_matrix"), covariance, 1e-9));
    EXPECT_TRUE(allclose(b.parameter("precision_matrix"), linalg_inv(covariance), 1e-9));
    const Distribution w = make("Wishart", {{"df", 5.0}, {name, m}});
    EXPECT_TRUE(allclose(w.log_prob(covariance), wishart(t(5.0), covariance).log_prob(covariance), 1e-9)) << name;
  }
  // Of low rank or not, the same vectors.
  const Tensor w = matrix({0.5, 1.0, -0.3}, 3), diag = t({0.6, 0.7, 0.8}), zero = t({0, 0, 0});
  const Distribution low = low_rank_multivariate_normal(zero, w, diag);
  const Distribution whole = multivariate_normal(zero, matmul(w, w.t()) + diag_embed(diag));
  EXPECT_NEAR(value(low.log_prob(t({1, 2, 3}))), value(whole.log_prob(t({1, 2, 3}))), 1e-9);
  EXPECT_NEAR(value(low.entropy()), value(whole.entropy()), 1e-9);
  EXPECT_NEAR(value(kl_divergence(low, whole)), 0, 1e-9);
  EXPECT_TRUE(allclose(low.parameter("precision_matrix"), whole.parameter("precision_matrix"), 1e-9));
}

TEST(Distributions, SharesOnTheSimplexIntegrateToOne) {
  // Two shares are one number: x and 1 - x.
  const Tensor x = grid(1e-6, 1 - 1e-6), both = stack({x, 1 - x}, -1);
  for (const Distribution& d :
       {dist::dirichlet(t({2.0, 3.0})), logistic_normal(t(std::vector<double>{0.3}), t(std::vector<double>{0.8})),
        relaxed_one_hot_categorical(t(0.8), t({0.3, 0.7}))}) {
    SCOPED_TRACE(d.name());
    EXPECT_NEAR(integral(d.log_prob(both).exp(), 1e-6, 1 - 1e-6), 1, 2e-3);
    Generator g(3);
    const Tensor drawn = d.sample({40000}, g);
    EXPECT_TRUE(all((sum(drawn, {-1}) - 1).abs() < 1e-9).item<bool>());
    const double below = integral(d.log_prob(stack({grid(1e-6, 0.4), 1 - grid(1e-6, 0.4)}, -1)).exp(), 1e-6, 0.4);
    EXPECT_NEAR(value((drawn.select(-1, 0) < 0.4).to(DType::f64).mean()), below, 0.012);
  }
}

TEST(Distributions, CorrelationsOfTwo) {
  // The correlation r of two has the density (1 - r^2)^(eta - 1) up to a constant; its triangle has 1 / sqrt(1 - r^2)
  // less.
  const Distribution d = lkj_cholesky(2.0, t(1.5));
  const Tensor r = grid(-1 + 1e-6, 1 - 1e-6), s = sqrt(1 - square(r));
  const Tensor rows = stack({stack({ones_like(r), zeros_like(r)}, -1), stack({r, s}, -1)}, -2);
  EXPECT_NEAR(integral(d.log_prob(rows).exp(), -1, 1), 1, 1e-3);
  Generator g(4);
  const Distribution three = lkj_cholesky(3.0, t({1.0, 4.0}));
  const Tensor x = three.sample({5000}, g);
  EXPECT_EQ(x.shape(), (Shape{5000, 2, 3, 3}));
  EXPECT_TRUE(all(three.support().check(x)).item<bool>());
  EXPECT_TRUE(all(isfinite(three.log_prob(x))).item<bool>());
}

TEST(Distributions, DivergencesAreIntegrals) {
  const std::vector<Line> p = {
      {normal(t(0.4), 0.9), -8, 8},
      {laplace(t(0.4), 0.5), -20, 20},
      {gumbel(t(0.2), 0.6), -4, 25},
      {gamma(t(2.5), 2.0), 1e-9, 25},
      {chi2(t(5.0)), 1e-9, 90},
      {exponential(t(1.5)), 1e-12, 40},
      {beta(t(2.5), 3.0), 1e-9, 1 - 1e-9},
      {continuous_bernoulli(t(0.3)), 1e-12, 1 - 1e-12},
      {pareto(t(1.2), 6.0), 1.2, 300},
      {uniform(t(0.2), 0.9), 0.2, 0.9 - 1e-12},
      {log_normal(t(0.1), 0.4), 1e-6, 25},
      {half_normal(t(0.8)), 0, 10},
      {inverse_gamma(t(5.0), 3.0), 1e-3, 400},
  };
  const std::vector<Distribution> q = {
      normal(t(0.0), 1.5),   laplace(t(-0.2), 0.8),   gumbel(t(0.5), 0.9),          gamma(t(3.5), 1.2),
      exponential(t(0.8)),   beta(t(1.5), 2.0),       continuous_bernoulli(t(0.6)), pareto(t(0.1), 2.0),
      uniform(t(-0.5), 1.5), log_normal(t(0.3), 0.6), half_normal(t(1.1)),          inverse_gamma(t(4.0), 2.0),
      chi2(t(3.0))};
  int finite = 0, infinite = 0;
  for (const Line& a : p)
    for (const Distribution& b : q) {
      Tensor kl;
      try {
        kl = kl_divergence(a.d, b);
      } catch (const NotDefined&) {
        continue;
      }
      SCOPED_TRACE(a.d.name() + " and " + b.name());
      const Tensor x = grid(a.low, a.high), log_p = a.d.log_prob(x);
      const Distribution free(b.shared(), false);
      const auto* rule = divergence_record(dynamic_cast<const RecordedDistribution&>(a.d.base()).args().record(),
                                           dynamic_cast<const RecordedDistribution&>(b.base()).args().record());
      ASSERT_NE(rule, nullptr);
      if (!rule->value) {
        ++infinite;
        EXPECT_TRUE(std::isinf(value(kl)));
        continue;
      }
      ++finite;
      const Tensor p_x = log_p.exp();
      EXPECT_NEAR(value(kl), integral(where(p_x > 0, p_x * (log_p - free.log_prob(x)), 0.0), a.low, a.high),
                  2e-3 + 2e-3 * std::abs(value(kl)));
    }
  EXPECT_GE(finite, 35);
  EXPECT_GE(infinite, 20);
}

TEST(Distributions, DivergencesOfCounts) {
  const std::vector<std::pair<Distribution, Distribution>> pairs = {
      {dist::bernoulli(t(0.3)), dist::bernoulli(t(0.6))},
      {dist::bernoulli(t(0.3)), dist::poisson(t(0.7))},
      {dist::poisson(t(3.0)), dist::poisson(t(2.0))},
      {geometric(t(0.3)), geometric(t(0.5))},
      {dist::binomial(t(6.0), 0.3), dist::binomial(t(6.0), 0.5)},
      {categorical(t({1, 2, 3})), categorical(t({2, 2, 1}))},
  };
  for (const auto& [p, q] : pairs) {
    SCOPED_TRACE(p.name());
    const Tensor x = p.has(Function::enumerate_support) ? p.enumerate_support() : strata::arange(0, 120, 1, DType::f64);
    const Tensor log_p = p.log_prob(x);
    EXPECT_NEAR(value(kl_divergence(p, q)), value(sum(log_p.exp() * (log_p - q.log_prob(x)))), 1e-9);
  }
  EXPECT_TRUE(std::isinf(value(kl_divergence(dist::bernoulli(t(0.3)), dist::bernoulli(t(0.0))))));
  EXPECT_THROW(kl_divergence(dist::binomial(t(6.0), 0.3), dist::binomial(t(7.0), 0.5)), NotDefined);
  EXPECT_THROW(kl_divergence(normal(t(0.0), 1.0), dist::bernoulli(t(0.5))), NotDefined);
}

TEST(Distributions, DivergencesOfVectorsAreMeans) {
  const Tensor a = matrix({1.5, 0.4, 0.4, 0.8}, 2), b = matrix({1.0, -0.2, -0.2, 1.3}, 2);
  const std::vector<std::pair<Distribution, Distribution>> pairs = {
      {dist::dirichlet(t({2, 3, 4})), dist::dirichlet(t({1, 2, 2}))},
      {multivariate_normal(t({0, 1}), a), multivariate_normal(t({1, 0}), b)},
      {wishart(t(5.0), a), wishart(t(4.0), b)},
      {independent(normal(t({0, 1}), t({1, 2})), 1), independent(normal(t({1, 1}), t({2, 1})), 1)},
  };
  for (const auto& [p, q] : pairs) {
    SCOPED_TRACE(p.name());
    Generator g(8);
    const Tensor x = p.sample({40000}, g), apart = p.log_prob(x) - q.log_prob(x);
    EXPECT_NEAR(value(kl_divergence(p, q)), value(apart.mean()), 5 * value(std(apart)) / 200);
  }
}

TEST(Distributions, Mixtures) {
  const Distribution d = mixture_same_family(categorical(t({0.3, 0.7})), normal(t({-1.0, 2.0}), t({0.5, 1.0})));
  const Tensor x = grid(-8, 10), p = d.log_prob(x).exp();
  EXPECT_NEAR(integral(p, -8, 10), 1, 1e-6);
  EXPECT_NEAR(value(d.mean()), integral(p * x, -8, 10), 1e-6);
  EXPECT_NEAR(value(d.variance()), integral(p * square(x - value(d.mean())), -8, 10), 1e-6);
  EXPECT_NEAR(value(d.cdf(t(0.5))), integral(d.log_prob(grid(-8, 0.5)).exp(), -8, 0.5), 1e-6);
  Generator g(2);
  const Tensor drawn = d.sample({40000}, g);
  EXPECT_NEAR(value(drawn.mean()), value(d.mean()), 5 * std::sqrt(value(d.variance()) / 40000));
  EXPECT_NEAR(value(var(drawn)) / value(d.variance()), 1, 0.05);
  EXPECT_THROW(d.rsample(), NotDefined);
  const Distribution vectors = mixture_same_family(categorical(strata::ones({3, 2}, DType::f64)),
                                                   independent(normal(strata::zeros({3, 2, 4}, DType::f64), 1.0), 1));
  EXPECT_EQ(vectors.batch_shape(), (Shape{3}));
  EXPECT_EQ(vectors.sample({5}).shape(), (Shape{5, 3, 4}));
  EXPECT_EQ(vectors.expand({2, 3}).sample().shape(), (Shape{2, 3, 4}));
  EXPECT_THROW(mixture_same_family(categorical(t({1, 1, 1})), normal(t({0, 1}), 1.0)), ValueError);
}

TEST(Distributions, IndependentSumsEvents) {
  const Distribution inner = normal(strata::zeros({3, 2}, DType::f64), 1.0), d = independent(inner, 1);
  EXPECT_EQ(d.batch_shape(), (Shape{3}));
  EXPECT_EQ(d.event_shape(), (Shape{2}));
  const Tensor x = d.sample({5});
  EXPECT_TRUE(allclose(d.log_prob(x), sum(inner.log_prob(x), {-1})));
  EXPECT_TRUE(allclose(d.entropy(), sum(inner.entropy(), {-1})));
  EXPECT_EQ(d.expand({4, 3}).sample().shape(), (Shape{4, 3, 2}));
  EXPECT_THROW(independent(inner, 3), ValueError);
}

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
void expect_text(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Distributions, RefusalsNameWhatIsWrong) {
  expect_text(message([] { normal(0.0, -1.0); }), {"Normal", "parameter scale", "GreaterThan(lower_bound=0.0)", "-1"});
  expect_text(message([] { dist::bernoulli(1.5); }),
              {"Bernoulli", "probs", "Interval(lower_bound=0.0, upper_bound=1.0)"});
  expect_text(message([] { make("Normal", {{"loc", 0.0}}); }), {"Normal", "scale is missing"});
  expect_text(message([] { make("Normal", {{"size", 0.0}}); }), {"no parameter 'size'", "loc, scale"});
  expect_text(message([] { make("Norml", {}); }), {"no distribution 'Norml'", "Normal"});
  expect_text(message([] { make("Bernoulli", {}); }), {"`probs` or `logits`", "not both"});
  expect_text(message([] { uniform(2.0, 1.0); }), {"Uniform", "low >= high"});
  expect_text(message([] { categorical(0.5); }), {"`probs` parameter must be at least one-dimensional"});
  expect_text(message([] { wishart(0.5, strata::eye(3)); }), {"Wishart", "greater than ndim - 1 = 2"});
  expect_text(message([] { gamma(1.0, 1.0).log_prob(strata::full({}, -1.0)); }), {"Gamma", "within the support"});
  expect_text(message([] { normal(strata::zeros({3}), 1.0).log_prob(strata::zeros({2})); }), {"not broadcastable"});
  expect_text(message([] { dist::poisson(1.0).rsample(); }), {"Poisson has no rsample()", "log_prob"});
  expect_text(message([] { normal(strata::zeros({3}), strata::ones({2})); }), {"Normal", "[3]", "[2]"});
  expect_text(message([] { dist::multinomial(strata::ones({2}), strata::ones({2})); }), {"Multinomial", "total_count"});
  // Without checks nothing is looked at.
  EXPECT_TRUE(std::isnan(value(make("Normal", {{"loc", t(0.0)}, {"scale", t(-1.0)}}, false).log_prob(t(0.0)))));
}

TEST(Distributions, EmptyShapesAndDtypes) {
  for (const Line& c : lines()) {
    SCOPED_TRACE(c.d.name());
    EXPECT_EQ(c.d.sample({0}).shape(), (Shape{0}));
    EXPECT_EQ(c.d.sample({2, 0, 3}).shape(), (Shape{2, 0, 3}));
    EXPECT_EQ(c.d.log_prob(c.d.sample({0})).shape(), (Shape{0}));
    EXPECT_EQ(c.d.expand({2, 3}).sample({4}).shape(), (Shape{4, 2, 3}));
  }
  EXPECT_EQ(categorical(t({1, 2})).sample({0, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(dist::multinomial(3.0, t({1, 2})).sample({0}).shape(), (Shape{0, 2}));
  EXPECT_EQ(normal(strata::zeros({0}), 1.0).sample({2}).shape(), (Shape{2, 0}));
  EXPECT_EQ(normal(0.0, 1.0).sample().dtype(), default_dtype());
  EXPECT_EQ(normal(strata::zeros({2}, DType::bf16), 1.0).sample().dtype(), DType::bf16);
  EXPECT_EQ(dist::poisson(strata::full({}, 3, DType::i64)).sample().dtype(), default_dtype());
}

// Values are written out, and fetched from a card, for a refusal alone.
TEST(Distributions, ChecksFetchNoValues) {
  bool asked = false;
  const auto text = [&] { return asked = true, std::string("values"); };
  check_values(t({1, 2}) > 0, "Test", text);
  EXPECT_FALSE(asked);
  EXPECT_THROW(check_values(t({1, -2}) > 0, "Test", text), ValueError);
  EXPECT_TRUE(asked);
  if (cuda::device_count() == 0) return;
  const Tensor shapes = strata::ones({300, 40}).to(Device::cuda());
  const Recording seen = record([&] {
    const Distribution d = dist::dirichlet(shapes);
    d.log_prob(d.sample());
  });
  for (const RecordedCall& c : seen.calls)
    if (c.op->name() == "to_device") {
      for (const ValueIndex v : c.results) EXPECT_LE(seen.values[static_cast<size_t>(v.at)].shape.product(), 1);
    }
}

TEST(Distributions, Constraints) {
  using Kind = Constraint::Kind;
  const auto holds = [](const Constraint& c, const Tensor& x) { return all(c.check(x)).item<bool>(); };
  EXPECT_TRUE(holds(positive(), t({1, 2})));
  EXPECT_FALSE(holds(positive(), t({1, NAN})));
  EXPECT_FALSE(holds(nonnegative_integer(), t({1.5})));
  EXPECT_TRUE(holds(Kind::simplex, t({0.5, 0.5})));
  EXPECT_FALSE(holds(Kind::one_hot, t({1, 1})));
  EXPECT_TRUE(holds(Kind::positive_definite, strata::eye(2)));
  EXPECT_FALSE(holds(Kind::positive_definite, -strata::eye(2)));
  EXPECT_TRUE(holds({Kind::positive_semidefinite}, strata::zeros({2, 2})));
  EXPECT_FALSE(holds(Kind::lower_cholesky, strata::ones({2, 2})));
  EXPECT_TRUE(holds(Kind::square, strata::ones({2, 2})));
  EXPECT_TRUE(holds({Kind::multinomial, {}, 3.0}, t({1, 2})));
  EXPECT_EQ(real().independent(1).check(strata::ones({3, 2})).shape(), (Shape{3}));
  EXPECT_EQ(real().independent(1).event_dim(), 1);
  EXPECT_THROW(real().independent(2).check(strata::ones({3})), ShapeError);
  EXPECT_THROW(Constraint(Kind::dependent).check(t(1.0)), ValueError);
  EXPECT_EQ(constraint_kind("simplex"), Kind::simplex);
  EXPECT_THROW(constraint_kind("triangle"), ValueError);
  EXPECT_EQ(nonnegative().text(), "GreaterThanEq(lower_bound=0.0)");
  EXPECT_EQ(nonnegative_integer().text(), "IntegerGreaterThan(lower_bound=0)");
  EXPECT_EQ(real().independent(1).text(), "IndependentConstraint(Real(), 1)");
}

TEST(Distributions, RecordsAreWhole) {
  EXPECT_GE(distribution_records().size(), 38u);
  std::set<std::string_view> names;
  for (const DistributionRecord* r : distribution_records()) {
    SCOPED_TRACE(r->name);
    EXPECT_TRUE(names.insert(r->name).second);
    EXPECT_FALSE(r->doc.empty());
    EXPECT_FALSE(r->module.empty());
    EXPECT_TRUE(r->draw && r->log_prob);
    EXPECT_EQ(r->support.kind() == Constraint::Kind::dependent, r->support_of != nullptr);
    for (const Parameter& p : r->parameters) EXPECT_FALSE(p.doc.empty()) << p.name;
    const bool derives = std::ranges::any_of(r->parameters, [](const Parameter& p) {
      return p.role == Parameter::Role::one_of || p.role == Parameter::Role::derived;
    });
    EXPECT_EQ(derives, r->derive != nullptr);
  }
  std::set<std::pair<std::string_view, std::string_view>> pairs;
  for (const DivergenceRecord& d : divergence_records()) {
    EXPECT_TRUE(names.contains(d.p) && names.contains(d.q)) << d.p << " " << d.q;
    EXPECT_TRUE(pairs.insert({d.p, d.q}).second) << d.p << " " << d.q;
  }
}

}  // namespace
}  // namespace strata::distributions
