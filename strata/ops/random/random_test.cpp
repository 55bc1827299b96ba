// Distributions, and that a draw depends on seed and position alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/core/parallel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/random/random_kernels.h"
#include "strata/ops/random/samplers.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};
Moments moments(const Tensor& x) {
  const std::vector<double> v = x.to_vector<double>();
  const double n = static_cast<double>(v.size());
  Moments m;
  for (double a : v) m.mean += a / n;
  for (double a : v) m.variance += (a - m.mean) * (a - m.mean) / n;
  for (double a : v) {
    const double z = (a - m.mean) / std::sqrt(m.variance);
    m.skew += z * z * z / n;
    m.kurtosis += z * z * z * z / n;
  }
  return m;
}

TEST(Random, VectorsDrawTheSameNumbersOnEveryLevel) {
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;
    for (const int64_t n : {1, 63, 64, 65, 2500}) {
      const RngKey key{0x123456789abcdef0u, 0xfffffffeu};  // the counter's halves carry
      Tensor x = empty({Shape{n}, DType::f32, Device::cpu(), std::nullopt});
      uniform_cpu(x, {}, 0, 1, key, DType::f32, Device::cpu());
      const std::vector<float> v = x.to_vector<float>();
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(v[static_cast<size_t>(i)], uniform_f32(philox(key, static_cast<uint64_t>(i / 4))[i % 4]))
            << i << " on level " << level;
    }
  }
  set_vec_level(-1);
}

TEST(Random, PermutationsAreTheOrderOfTheirKeys) {
  for (const int64_t n : {0, 1, 2, 3, 511, 512, 513, 5000, 100001}) {
    const RngKey key{7, static_cast<uint64_t>(n)};
    Tensor y = empty({Shape{n}, DType::i64, Device::cpu(), std::nullopt});
    randperm_cpu(y, n, key, Device::cpu());
    std::vector<std::pair<uint64_t, int64_t>> keys;
    for (int64_t i = 0; i < n; ++i) {
      const auto r = philox(key, static_cast<uint64_t>(i / 2));
      const size_t w = i % 2 == 0 ? 0 : 2;
      keys.emplace_back(static_cast<uint64_t>(r[w]) << 32 | r[w + 1], i);
    }
    std::sort(keys.begin(), keys.end());
    const std::vector<int64_t> order = y.to_vector<int64_t>();
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(order[static_cast<size_t>(i)], keys[static_cast<size_t>(i)].second) << i << " of " << n;
  }
}

TEST(Random, PhiloxMatchesItsPublishedVector) {
  // Key 0, counter 0 of philox4x32-10 in the authors' known-answer file.
  const auto r = philox({0, 0}, 0);
  EXPECT_EQ(r, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Random, ElementsAreThoseOfTheirCounterBlock) {
  Generator g(7);
  g.next(5);
  const std::vector<float> v = rand({101}, DType::f32, g).to_vector<float>();
  for (int64_t i = 0; i < 101; ++i)
    EXPECT_EQ(v[static_cast<size_t>(i)],
              uniform_f32(philox({7, 5}, static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)]))
        << i;
  EXPECT_EQ(g.state().offset, 5 + random_blocks(101, DType::f32));
}

TEST(Random, SameOnAnyNumberOfThreadsAndForAnyLength) {
  const int before = num_threads();
  std::vector<std::vector<float>> draws;
  for (int threads : {1, 4}) {
    set_num_threads(threads);
    Generator g(11);
    draws.push_back(randn({100001}, DType::f32, g).to_vector<float>());
  }
  set_num_threads(before);
  EXPECT_EQ(draws[0], draws[1]);
  Generator g(11);
  const std::vector<float> shorter = randn({1001}, DType::f32, g).to_vector<float>();
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), draws[0].begin()));
}

TEST(Random, MomentsOfTheDistributions) {
  manual_seed(5);
  for (DType t : {DType::f32, DType::f64}) {
    const Moments n = moments(normal({400000}, 2, 3, t));
    EXPECT_NEAR(n.mean, 2, 0.03);
    EXPECT_NEAR(n.variance, 9, 0.15);
    EXPECT_NEAR(n.skew, 0, 0.03);
    EXPECT_NEAR(n.kurtosis, 3, 0.06);
    const Moments u = moments(uniform({400000}, -1, 3, t));
    EXPECT_NEAR(u.mean, 1, 0.01);
    EXPECT_NEAR(u.variance, 16.0 / 12, 0.02);
    EXPECT_NEAR(u.kurtosis, 1.8, 0.03);
  }
  EXPECT_NEAR(moments(randint(10, 20, {100000})).mean, 14.5, 0.05);
  EXPECT_NEAR(moments(bernoulli(full({100000}, 0.3))).mean, 0.3, 0.01);
}

TEST(Random, UniformStaysBelowItsUpperBoundInEveryDtype) {
  manual_seed(6);
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const std::vector<double> v = uniform({50000}, 0, 1, t).to_vector<double>();
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << name_of(t);
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0) << name_of(t);
  }
}

TEST(Random, TruncatedNormalHasItsShapeWithinItsBounds) {
  Tensor x = empty({200000});
  manual_seed(8);
  trunc_normal_(x, 0, 1, -1, 2);
  const std::vector<float> v = x.to_vector<float>();
  EXPECT_GE(*std::min_element(v.begin(), v.end()), -1);
  EXPECT_LE(*std::max_element(v.begin(), v.end()), 2);
  // (phi(-1) - phi(2)) / (Phi(2) - Phi(-1))
  EXPECT_NEAR(moments(x).mean, 0.22964, 0.006);
}

TEST(Random, MultinomialFollowsItsWeights) {
  manual_seed(9);
  const Tensor w = from_span<float>(std::vector<float>{1, 0, 3, 6}, {4});
  std::vector<double> seen(4), first(4);
  for (int64_t i : multinomial(w, 100000, true).to_vector<int64_t>()) seen[static_cast<size_t>(i)] += 1e-5;
  const std::vector<int64_t> drawn = multinomial(w.expand({50000, 4}), 3).to_vector<int64_t>();
  for (size_t r = 0; r < drawn.size(); r += 3) {
    first[static_cast<size_t>(drawn[r])] += 1.0 / 50000;
    ASSERT_TRUE(drawn[r] != drawn[r + 1] && drawn[r] != drawn[r + 2] && drawn[r + 1] != drawn[r + 2]);
  }
  for (const std::vector<double>& p : {seen, first}) {
    EXPECT_NEAR(p[0], 0.1, 0.01);
    EXPECT_EQ(p[1], 0);
    EXPECT_NEAR(p[2], 0.3, 0.01);
    EXPECT_NEAR(p[3], 0.6, 0.01);
  }
  EXPECT_THROW(multinomial(w, 4), ValueError);  // only three weights are positive
  EXPECT_THROW(multinomial(zeros({3}), 1), ValueError);
}

TEST(Random, MultinomialReadsEveryWeight) {
  manual_seed(12);
  // Between zeros, of either sign, one weight: what is drawn is known wherever it stands among those added at once.
  for (const int64_t n : {1, 7, 8, 9, 64, 67})
    for (int64_t at = 0; at < n; ++at) {
      std::vector<double> w(static_cast<size_t>(n), at % 2 ? -0.0 : 0.0);
      w[static_cast<size_t>(at)] = 0.25;
      for (const bool replacement : {false, true})
        EXPECT_EQ(multinomial(from_span<double>(w, {n}), 1, replacement).item(), static_cast<double>(at));
      for (const double bad : {-1.0, static_cast<double>(INFINITY), std::nan("")}) {
        w[static_cast<size_t>(at)] = bad;
        EXPECT_THROW(multinomial(from_span<double>(w, {n}), 1), ValueError) << bad << " at " << at << " of " << n;
      }
    }
}

TEST(Random, PermutationsHoldEachNumberOnce) {
  manual_seed(10);
  const Tensor p = randperm(1000);
  EXPECT_NE(p.to_vector<int64_t>(), arange(1000).to_vector<int64_t>());
  EXPECT_EQ(std::get<0>(sort(p)).to_vector<int64_t>(), arange(1000).to_vector<int64_t>());
}

TEST(Random, FillsReachStridedLeavesAndRecordNothing) {
  Tensor x = zeros({3, 4});
  x.set_requires_grad();
  manual_seed(12);
  normal_(x.t(), 100, 1);
  for (float v : x.to_vector<float>()) EXPECT_NEAR(v, 100, 6);
  EXPECT_TRUE(x.is_leaf());
  manual_seed(12);
  EXPECT_EQ(x.t().to_vector<float>(), normal({4, 3}, 100, 1).to_vector<float>());
}

// Before a shape is checked the generator is asked for its numbers: no size may overflow there.
TEST(Random, SizesThatCannotBeAreErrors) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(randperm(most), Error);
  EXPECT_THROW(rand({most}), Error);
  EXPECT_THROW(randn({1 << 20, most / 1024}), Error);
  EXPECT_THROW(randint(0, 5, {most, 3}), Error);
  EXPECT_THROW(exponential({most, most}, 1), Error);
  EXPECT_THROW(geometric({most}, 0.5), Error);
  EXPECT_THROW(multinomial(ones({2, 3}), most, true), Error);
  EXPECT_THROW(multinomial(ones({2, 3}), -most, true), Error);
}

TEST(Random, FurtherLawsHaveTheirShares) {
  const auto share_below = [](const Tensor& x, double at) {
    double n = 0;
    for (const double v : x.to_vector<double>()) n += v <= at;
    return n / static_cast<double>(x.numel());
  };
  manual_seed(13);
  const Tensor waits = exponential({100000}, 2), angles = cauchy({100000}, 1, 3), trials = geometric({100000}, 0.25);
  for (const double at : {0.1, 0.5, 2.0}) EXPECT_NEAR(share_below(waits, at), 1 - std::exp(-2 * at), 0.01);
  EXPECT_NEAR(share_below(angles, 1), 0.5, 0.01);
  EXPECT_NEAR(share_below(angles, 4), 0.75, 0.01);
  EXPECT_NEAR(share_below(trials, 1), 0.25, 0.01);
  EXPECT_NEAR(share_below(trials, 3), 1 - 0.75 * 0.75 * 0.75, 0.01);
  EXPECT_NEAR(share_below(log_normal({100000}, 0.5, 2), std::exp(0.5)), 0.5, 0.01);
  EXPECT_EQ(geometric({4}, 0.5, DType::i16).dtype(), DType::i16);
  Generator own(3), again(3);
  EXPECT_EQ(exponential({5}, 1, {}, own).to_vector<float>(), exponential({5}, 1, {}, again).to_vector<float>());
}

}  // namespace
}  // namespace strata
