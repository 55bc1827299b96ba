// What the generated tests cannot know: that samples follow their distributions, that no parameter hangs, and that the
// gradient of gamma numbers is right.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/ops/distributions/distributions.h"
#include "strata/ops/distributions/distributions_kernel.h"
#include "strata/ops/distributions/gamma_slope_narrow_inl.h"
#include "strata/ops/distributions/samplers_inl.h"
#include "strata/ops/distributions/samplers_narrow_inl.h"
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

// Numbers that a test chooses, in place of a stream.
struct Given {
  double first, second;
  void draw() {}
};

// What f32 decides of a proposal is what double decides: at random ones, and at those that are as close to the limit as
// numbers of f32 can be.
TEST(Samplers, PoissonIsDecidedAsInDouble) {
  std::mt19937_64 random(8);
  std::uniform_real_distribution<double> uniform(0, 1);
  using sampler::Step;
  int64_t decided = 0, settled = 0;
  for (const double rate : {10.0, 10.5, 13.25, 27.0, 99.0, 1000.0, 54321.0, 9e5, 3e7, 1e12})
    for (int i = 0; i < 20000; ++i) {
      sampler::PoissonRejection<double> p;
      Given numbers{uniform(random), 1 - uniform(random)};
      double result = 0;
      ASSERT_TRUE(p.begin(rate, numbers, result));
      const double u = numbers.first - 0.5, us = 0.5 - std::abs(u), inverse = 1.1239 + 1.1328 / (p.b - 3.4),
                   sure = 0.9277 - 3.6224 / (p.b - 2), k = std::floor((2 * p.a / us + p.b) * u + rate + 0.43);
      if (i % 2 == 1) {  // at the limit, but for a few units of f32 or of double
        const double limit = i % 4 == 1
                                 ? sure
                                 : std::exp(k * std::log(rate) - rate - sampler::log_factorial(std::max(k, 0.0))) *
                                       (p.a / (us * us) + p.b) / inverse;
        numbers.second = limit * (1 + (uniform(random) - 0.5) * (i % 8 < 4 ? 1e-6 : 1e-13));
        if (!(numbers.second >= 0x1p-53 && numbers.second <= 1)) continue;  // as a stream has them
      }
      const double v = numbers.second;
      const bool refused = k < 0 || (us < 0.013 && v > us);
      const bool wanted =
          (us >= 0.07 && v <= sure) || (!refused && std::log(v * inverse / (p.a / (us * us) + p.b)) <=
                                                        k * std::log(rate) - rate - sampler::log_factorial(k));
      const Step step = p.propose(numbers);
      ++(step == Step::doubtful ? settled : decided);
      ASSERT_EQ(step == Step::doubtful ? p.settle() : step == Step::taken, wanted)
          << rate << " " << numbers.first << " " << v << " of " << k;
    }
  EXPECT_GT(decided, settled);
}

TEST(Samplers, FunctionsOfNarrowSamplersAreGoodTo1e12) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto near = [](double got, double want, double x) {
    ASSERT_NEAR(got, want, 4e-12 * std::abs(want)) << std::hexfloat << x;
  };
  for (int i = 0; i < 100000; ++i) {
    const double u = uniform(random), wide = std::exp(100 * u - 50), close = 1 - std::exp(-40 * u);
    for (const double x : {1 - u, wide, close, 1 + 1e-5 * u, 1 / wide}) near(sampler::short_log(x), std::log(x), x);
    near(sampler::short_inverse(wide), 1 / wide, wide);
    near(sampler::short_root(wide), std::sqrt(wide), wide);
    near(sampler::short_inverse_root(wide), 1 / std::sqrt(wide), wide);
    near(sampler::short_exp(-700 * u), std::exp(-700 * u), u);
    // Near its zeros the cosine of a rounded product is not good to that share.
    const double turned = u < 0.5 ? 0.25 - u : u - 0.75;
    near(sampler::short_cosine_of_turns(u), std::sin(2 * std::numbers::pi * turned), u);
  }
  EXPECT_EQ(sampler::short_root(0), 0);
  EXPECT_EQ(sampler::short_log(1), 0);
  sampler::WordStream words{{123456789012345, 1234}, 0xFFFFFFFFFFF0};
  for (int i = 0; i < 64; ++i) {
    sampler::Stream<double> numbers = words.back(0);
    const auto bits = philox(words.key, words.block);
    words.draw();
    numbers.draw();
    EXPECT_EQ(words.first(), numbers.first);
    EXPECT_EQ(words.second(), numbers.second);
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(words.words[k], bits[k]);
  }
  for (const uint32_t word : {0u, 1u, 0x7FFu, 0x800u, 0x80000000u, 0xFFFFFFFFu})
    EXPECT_EQ(sampler::uniform_of_words(word, ~word / 3), uniform_f64(word, ~word / 3));
}

// A sampler's number with the stream of element i. What it decides without settle(), settle() decides likewise.
template <class Sampler>
double narrow_number(RngKey key, uint64_t i, double parameter, int& doubtful) {
  sampler::WordStream s{key, i * sampler::kBlocks};
  Sampler at_work;
  double result = 0;
  if (!at_work.begin(parameter, s, result)) return result;
  for (int round = 0; round < Sampler::kMost; ++round) {
    const sampler::Step step = at_work.propose(s);
    // Products have gone on when they say that one is refused.
    if (step == sampler::Step::refused && std::is_same_v<Sampler, sampler::NarrowPoissonProducts>) continue;
    Sampler settled = at_work;
    const bool taken = settled.settle(s);
    if (step == sampler::Step::doubtful) {
      ++doubtful;
      at_work = settled;
    } else {
      EXPECT_EQ(taken, step == sampler::Step::taken) << parameter << " " << i << " " << round;
    }
    if (taken) return at_work.result();
  }
  return at_work.otherwise();
}
TEST(Samplers, NarrowOnesDrawWhatThoseInDoubleDraw) {
  const RngKey key{2024, 5};
  int doubtful = 0;
  for (const float a : {1e-38F, 1e-3F, 0.1F, 0.5F, 0.99F, 1.0F, 1.5F, 4.0F, 30.0F, 1e4F, 1e9F, 1e30F})
    for (uint64_t i = 0; i < 20000; ++i) {
      sampler::Stream<double> stream{key, i * sampler::kBlocks};
      const double want = sampler::gamma<double>(a, stream);
      double got = narrow_number<sampler::NarrowGamma>(key, i, a, doubtful);
      if (a < 1) got *= sampler::gamma_boost(a, {key, i * sampler::kBlocks});
      // Powers of shapes near 0 are as good as their exponents.
      ASSERT_NEAR(got, want, 1e-9 * want + 1e-45) << a << " " << i;
    }
  EXPECT_GT(doubtful, 10000);
  for (const float rate : {0.0F, 1e-6F, 0.7F, 5.0F, 9.9F, 10.0F, 10.5F, 27.0F, 99.0F, 1e4F, 9e5F, 1e12F, 1e20F})
    for (uint64_t i = 0; i < 20000; ++i) {
      sampler::Stream<double> stream{key, i * sampler::kBlocks};
      ASSERT_EQ(rate < 10 ? narrow_number<sampler::NarrowPoissonProducts>(key, i, rate, doubtful)
                          : narrow_number<sampler::NarrowPoissonRejection>(key, i, rate, doubtful),
                sampler::poisson<double>(rate, stream))
          << rate << " " << i;
    }
  for (const double bad : {-1.0, std::nan("")}) {
    EXPECT_TRUE(std::isnan(narrow_number<sampler::NarrowGamma>(key, 0, bad, doubtful)));
    EXPECT_TRUE(std::isnan(narrow_number<sampler::NarrowPoissonProducts>(key, 0, bad, doubtful)));
  }
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(narrow_number<sampler::NarrowGamma>(key, 0, 0, doubtful), 0);
  EXPECT_EQ(narrow_number<sampler::NarrowGamma>(key, 0, inf, doubtful), inf);
  EXPECT_EQ(narrow_number<sampler::NarrowPoissonRejection>(key, 0, inf, doubtful), inf);
}

// The values of the table are of 50 digits: by the series of gamma_slope(), in mpmath.
TEST(Samplers, SlopesOfGammaNumbersForF32AreGoodToOneInAMillion) {
  using sampler::narrow_gamma_slope;
  for (double log_a = -11.5; log_a < 6.9; log_a += 0.0371)
    for (double log_x = -30; log_x < 12; log_x += 0.0273) {
      const auto a = static_cast<float>(std::exp(log_a)), x = static_cast<float>(std::exp(log_x));
      const double want = sampler::gamma_slope<double>(a, x);
      ASSERT_TRUE(sampler::is_ordinary(a, x));
      ASSERT_NEAR(narrow_gamma_slope(a, x), want, 1e-6 * std::abs(want)) << a << " " << x;
    }
  // Of larger shapes gamma_slope() is good near them.
  for (const double a : {1e3, 1e4, 1e5, 1e6, 1e8})
    for (double z = -4; z <= 4; z += 0.13) {
      const auto shape = static_cast<float>(a), x = static_cast<float>(a + z * std::sqrt(a));
      const double want = sampler::gamma_slope<double>(shape, x);
      ASSERT_NEAR(narrow_gamma_slope(shape, x), want, 2e-6 * want) << a << " " << z;
    }
  struct Row {
    float a, x;
    double want;
  };
  for (const Row& row :
       {Row{1e-05F, 1e-20F, 4.54745023816e-14}, Row{1e-05F, 0.3F, 36676.4308635}, Row{1e-05F, 2.5F, 75882.9750398},
        Row{0.25F, 0.9F, 3.01591414517}, Row{0.25F, 1.1F, 3.27367500463}, Row{0.99F, 30.0F, 4.02596361669},
        Row{1.0F, 0.0101F, 0.0509642939485}, Row{1.0F, 7.99F, 2.76781338721}, Row{2.0F, 0.01F, 0.0277377153901},
        Row{3.5F, 2.25F, 0.83353764778}, Row{6.0F, 8.0F, 1.1831607995}, Row{30.0F, 28.5F, 0.980003635629},
        Row{30.0F, 250.0F, 2.42111328171}, Row{200.0F, 1.5F, 0.0369914521735}, Row{1000.0F, 1100.0F, 1.04858667856},
        Row{5000.0F, 200.0F, 0.134123175635}, Row{500.0F, 3950.0F, 2.36709977958}, Row{500.0F, 4100.0F, 2.39707237144},
        Row{20000.0F, 20300.0F, 1.00747117425}})
    ASSERT_NEAR(narrow_gamma_slope(row.a, row.x), row.want, 1e-6 * row.want) << row.a << " " << row.x;
  for (const float bad : {0.0F, -1.0F, 1e31F, std::nanf("")}) {
    EXPECT_FALSE(sampler::is_ordinary(bad, 1.0F));
    EXPECT_FALSE(sampler::is_ordinary(1.0F, bad));
    EXPECT_FALSE(sampler::slope::is_near_shape(bad, 1.0F));
    EXPECT_FALSE(sampler::slope::is_near_shape(1.0F, bad));
  }
}

// At a = 1 the slope is log x + gamma + e^x E1(x), at a = 2 that of x times 1 + 1 / x, and so on; the series alone
// would cancel to nothing from 40 on, and its terms be past the largest number from 710 on.
TEST(Samplers, SlopesOfGammaNumbersFarAboveTheirShapeAreRight) {
  const auto e1 = [](double x) {  // e^x E1(x) as a continued fraction (DLMF 6.9.1), from below
    double f = 0;
    for (int k = 200; k > 0; --k) f = k / (1 + k / (x + f));
    return 1 / (x + f);
  };
  for (const double x : {5.0, 19.0, 21.5, 23.0, 30.0, 60.0, 200.0, 590.0, 700.0, 710.0, 1e3, 1e6, 1e300}) {
    const double want = std::log(x) + std::numbers::egamma + e1(x);
    const Tensor got = standard_gamma_grad(full({9}, 1.0, DType::f64), full({9}, x, DType::f64));
    for (const double v : got.to_vector<double>()) ASSERT_NEAR(v, want, 3e-7 * want) << x;
  }
  // Where the series ends both say the same.
  for (const double a : {1e-4, 0.3, 2.0, 40.0, 700.0, 1000.0}) {
    double below = a, above = a + 1e5;
    for (int i = 0; i < 60; ++i) {
      const double middle = (below + above) / 2;
      (sampler::is_far(a, middle) ? above : below) = middle;
    }
    const double series = sampler::gamma_slope(a, below), tail = sampler::gamma_slope(a, above);
    ASSERT_TRUE(!sampler::is_far(a, below) && sampler::is_far(a, above));
    EXPECT_NEAR(series, tail, 1e-6 * std::abs(tail)) << a;
  }
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

// What the vectors decide is what each element by itself is, whichever elements stand beside it.
TEST(Samplers, CountsByVectorsAreThoseOfEachElement) {
  std::vector<double> rates, trials, shares;
  for (int i = 0; i < 20011; ++i) {
    rates.push_back(i % 97 == 0 ? 0 : i % 5 == 0 ? 1e-3 * i : std::exp(i * 0.0006));
    trials.push_back(i % 89 == 0 ? 0 : i % 7 == 0 ? 0.37 * i : i % 41);
    shares.push_back(i % 101 == 0 ? 1 : i % 103 == 0 ? 0 : (i % 1009) / 1009.0);
  }
  const Tensor a = from_span<double>(rates, {20011}), n = from_span<double>(trials, {20011});
  const Tensor p = from_span<double>(shares, {20011});
  const RngKey key{77, 5};
  Tensor y = empty({20011}, DType::f64);
  for (const auto kind : {sampler::Kind::poisson, sampler::Kind::binomial}) {
    const bool one = kind == sampler::Kind::poisson;
    sample_cpu(kind, key, y, one ? a : n, one ? Tensor() : p);
    const std::vector<double> got = y.to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], sampler::element(kind, key, i, one ? rates[i] : trials[i], shares[i])) << i;
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
