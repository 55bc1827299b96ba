// What the records' own checks cannot know of generation's ops: distributions, batches, transformers' filters, odd
// logits.

#include "strata/ops/generation/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/parallel.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Tensor row(std::vector<float> v) {
  const auto n = static_cast<int64_t>(v.size());
  return from_span<float>(v, {1, n});
}
Tensor number(double v) {
  return full({}, v, DType::f32);
}
Tensor count(int64_t v) {
  return full({}, v, DType::i64);
}
Tensor whole(std::vector<int64_t> v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}

// `draws` tokens of one row of logits, of one seed at positions 0, 1, ...
std::vector<int64_t> drawn(const Tensor& logits, int64_t draws, const TokenFilters& filters = {}, int64_t seed = 1,
                           int64_t vocab = 0) {
  const auto [ids, logprobs] = sample_tokens(expand(logits, {draws, logits.size(1)}), full({draws}, seed, DType::i64),
                                             arange(draws, DType::i64), filters, vocab);
  return ids.to_vector<int64_t>();
}

// ---- distributions

// Pearson's statistic of tokens against probabilities, for tokens of at least 5 expected draws.
double chi_square(const std::vector<int64_t>& tokens, const std::vector<double>& p, int& freedom) {
  std::vector<double> seen(p.size());
  for (const int64_t t : tokens) seen[static_cast<size_t>(t)] += 1;
  double sum = 0, rest_seen = 0, rest = 0;
  freedom = -1;
  const auto add = [&](double got, double want) {
    sum += (got - want) * (got - want) / want;
    ++freedom;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    const double want = p[i] * static_cast<double>(tokens.size());
    if (want < 5) {
      rest += want;
      rest_seen += seen[i];
    } else {
      add(seen[i], want);
    }
  }
  if (rest > 0) add(rest_seen, rest);
  return sum;
}

TEST(SampleTokens, FollowsTheDistribution) {
  manual_seed(3);
  const Tensor logits = randn({1, 40}) * 2.0;
  for (const double temperature : {0.5, 1.0, 1.7})
    for (const int64_t seed : {1, 2, 99}) {
      const std::vector<double> p = softmax(logits * (1 / temperature), -1).to_vector<double>();
      int freedom = 0;
      const double x = chi_square(drawn(logits, 20000, {.temperature = number(temperature)}, seed), p, freedom);
      // Wilson and Hilferty: beyond this one in a million.
      const double n = freedom, bound = n * std::pow(1 - 2 / (9 * n) + 4.75 * std::sqrt(2 / (9 * n)), 3);
      EXPECT_LT(x, bound) << "temperature " << temperature << ", seed " << seed << ", freedom " << freedom;
    }
}

TEST(SampleTokens, SeedsDrawIndependently) {
  // One draw of each of many seeds, at one position.
  const Tensor logits = row({0, 1, 2, 3}), many = expand(logits, {20000, 4});
  const auto [ids, logprobs] = sample_tokens(many, arange(20000, DType::i64), full({20000}, 5, DType::i64));
  int freedom = 0;
  EXPECT_LT(chi_square(ids.to_vector<int64_t>(), softmax(logits, -1).to_vector<double>(), freedom), 30);
  EXPECT_EQ(freedom, 3);
}

// ---- filters

TEST(SampleTokens, KeepsWhatTransformersKeeps) {
  // Of the logits warpers of transformers 5.24 over these logits: the ids left.
  const Tensor logits = row({0, 1.5F, -2, 2, 0.25F, -1, 0.75F, 1.5F, -1, 0.5F, -0.5F, 0.25F});
  struct Case {
    double temperature;
    int64_t top_k;
    double top_p, min_p, typical_p;
    std::set<int64_t> kept;
  };
  for (const Case& c : std::vector<Case>{
           {1, 2, 1, 0, 1, {1, 3, 7}},
           {1, 3, 1, 0, 1, {1, 3, 7}},
           {1, 6, 1, 0, 1, {1, 3, 4, 6, 7, 9, 11}},
           {1, 0, 0.5, 0, 1, {1, 3, 7}},
           {1, 0, 0.9, 0, 1, {1, 3, 4, 6, 7, 9, 11}},
           {1, 0, 0.01, 0, 1, {3}},
           {1, 0, 1, 0.2, 1, {1, 3, 6, 7, 9}},
           {1, 0, 1, 0.9, 1, {3}},
           {1, 0, 1, 0, 0.3, {1, 7}},
           {1, 0, 1, 0, 0.8, {1, 3, 4, 6, 7, 9, 11}},
           {1, 0, 1, 0, 0.02, {1, 7}},
           {0.5, 6, 0.8, 0, 1, {1, 3, 7}},
           {2, 0, 0.9, 0.3, 1, {0, 1, 3, 4, 6, 7, 9, 11}},
           {0.7, 9, 0.95, 0.1, 0.7, {1, 3, 7}},
           {1, 5, 1, 0, 0.5, {1, 3, 7}},
           {1.5, 0, 0.7, 0, 0.6, {1, 3, 6, 7}},
       }) {
    const std::vector<int64_t> tokens = drawn(
        logits, 5000, {number(c.temperature), count(c.top_k), number(c.top_p), number(c.min_p), number(c.typical_p)});
    EXPECT_EQ(std::set<int64_t>(tokens.begin(), tokens.end()), c.kept)
        << c.temperature << " " << c.top_k << " " << c.top_p << " " << c.min_p << " " << c.typical_p;
  }
}

TEST(SampleTokens, TiesAtTheEdgeStandInTheOrderOfIds) {
  const Tensor equal = zeros({1, 10});
  const auto kept = [&](const TokenFilters& f) {
    const std::vector<int64_t> tokens = drawn(equal, 500, f);
    return std::set<int64_t>(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(kept({.top_p = number(0.35)}), (std::set<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_k = count(3)}).size(), 10u) << "what ties with the last of them stays";
  EXPECT_EQ(kept({.min_p = number(1)}).size(), 10u);
  EXPECT_EQ(kept({.temperature = number(0)}), (std::set<int64_t>{0}));
}

TEST(SampleTokens, WhatIsFilteredIsDrawnInItsProportions) {
  manual_seed(4);
  const Tensor logits = randn({1, 200});
  const std::vector<double> p = softmax(logits, -1).to_vector<double>();
  std::vector<double> sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  std::vector<double> left(p.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += left[i] = p[i] >= sorted[29] ? p[i] : 0;
  for (double& v : left) v /= sum;
  int freedom = 0;
  const double x = chi_square(drawn(logits, 20000, {.top_k = count(30)}), left, freedom);
  EXPECT_LT(x, 29 + 4.75 * std::sqrt(2 * 29.0) + 10);
  EXPECT_EQ(freedom, 29);
}

// ---- batches and odd logits

TEST(SampleTokens, ARequestDrawsTheSameInAnyBatch) {
  manual_seed(5);
  const int64_t rows = 7;
  const Tensor logits = randn({rows, 513});
  const Tensor seeds = whole({1, 2, 3, 1, 5, 6, 7}), positions = whole({0, 9, 2, 3, 4, 100, 6});
  const TokenFilters filters{.temperature = uniform({rows}, 0.5, 2), .top_k = whole({0, 5, 100, 0, 7, 512, 1})};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = logits.to(dtype);
    const auto [ids, logprobs] = sample_tokens(x, seeds, positions, filters, 500);
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      for (int64_t b = 0; b < rows; ++b) {
        const auto part = [&](const Tensor& t) { return narrow(t, 0, b, 1); };
        const auto [id, logprob] =
            sample_tokens(part(x), part(seeds), part(positions),
                          {.temperature = part(filters.temperature), .top_k = part(filters.top_k)}, 500);
        EXPECT_EQ(id.item(), part(ids).item()) << b;
        EXPECT_EQ(logprob.item(), part(logprobs).item()) << b;
        EXPECT_LT(id.item(), 500);
      }
    }
    set_num_threads(2);
  }
}

TEST(SampleTokens, NothingBeyondTheVocabularyIsDrawn) {
  // The likeliest ids by far are beyond it.
  const Tensor logits = row({0, 1, 0, 50, 60});
  for (const TokenFilters& f : {TokenFilters{}, TokenFilters{.temperature = number(0)},
                                TokenFilters{.top_k = count(2), .top_p = number(0.9), .typical_p = number(0.9)}})
    for (const int64_t t : drawn(logits, 300, f, 1, 3)) EXPECT_LT(t, 3);
  const auto [id, logprob] = sample_tokens(logits, whole({0}), whole({0}), {.temperature = number(0)}, 3);
  EXPECT_EQ(id.item(), 1);
  EXPECT_NEAR(logprob.item(), log_softmax(logits, -1).to_vector<double>()[1], 1e-5) << "over all of them";
}

TEST(SampleTokens, OddLogits) {
  const TokenFilters all{number(0.7), count(3), number(0.9), number(0.1), number(0.8)};
  for (const TokenFilters& f : {TokenFilters{}, TokenFilters{.temperature = number(0)}, all}) {
    for (const int64_t t : drawn(row({kNan, 1, kNan, 2}), 100, f)) EXPECT_TRUE(t == 1 || t == 3) << t;
    for (const int64_t t : drawn(row({0, kInf, 5, -kInf}), 100, f)) EXPECT_EQ(t, 1);
    for (const int64_t t : drawn(row({-kInf, -kInf, 3, -kInf}), 100, f)) EXPECT_EQ(t, 2);
    for (const int64_t t : drawn(row({7}), 10, f)) EXPECT_EQ(t, 0);
  }
  const std::vector<int64_t> none = drawn(row({-kInf, -kInf}), 100);
  EXPECT_EQ(std::set<int64_t>(none.begin(), none.end()).size(), 2u) << "all are equally likely";
  EXPECT_THROW(drawn(row({kNan, kNan, 3}), 2, {}, 1, 2), ValueError);
  // So cold that the gaps overflow.
  for (const int64_t t : drawn(row({1, 2, 1.5F}), 50, {.temperature = number(1e-38)})) EXPECT_EQ(t, 1);
}

// ---- penalties

TEST(Penalties, OfHistoriesOfDifferentLengths) {
  const Tensor logits = from_span<float>(std::vector<float>{4, -4, 2, 0, 4, -4, 2, 0}, {2, 4});
  const Tensor history = from_span<int64_t>(std::vector<int64_t>{0, 1, 2, 2, 3, 3, 3, 3}, {2, 4});
  const Tensor y = penalise_logits(logits, history, whole({4, 1}), whole({2, 1}), {number(2), number(0.25), number(1)});
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({2, -8, 1 - 0.5F - 1, 0, 4, -4, 2, 0}));
}

TEST(Penalties, ForbiddenIdsAreNotDrawn) {
  const Tensor x =
      bias_logits(row({9, 8, 1}), whole({0, 1, -1}), from_span<float>(std::vector<float>{-kInf, -kInf, 3}, {3}));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>({-kInf, -kInf, 1}));
  for (const int64_t t : drawn(x, 50)) EXPECT_EQ(t, 2);
}

// ---- the cache

TEST(Cache, RowsOfDifferentLengthsAttendAsIfAlone) {
  manual_seed(6);
  const int64_t batch = 3, heads = 4, kv = 2, d = 16, capacity = 40;
  const std::vector<int64_t> before = {0, 17, 33};
  for (const int64_t fresh : {1, 5})
    for (const int64_t window : {0, 7}) {
      const Tensor k = randn({batch, kv, capacity, d}), v = randn({batch, kv, capacity, d}),
                   q = randn({batch, heads, fresh, d}), more = randn({batch, kv, fresh, d});
      Tensor keys = k.clone();
      cache_write_(keys, more, whole(before));
      const Tensor y = cache_attention(q, keys, v, whole(before), {.window = window});
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t n = before[static_cast<size_t>(b)];
        const auto part = [&](const Tensor& t) { return narrow(t, 0, b, 1); };
        AttentionOptions o;
        o.is_causal = true;
        o.window = window;
        o.query_offset = n;
        const Tensor alone = scaled_dot_product_attention(part(q), narrow(part(keys), 2, 0, n + fresh),
                                                          narrow(part(v), 2, 0, n + fresh), {}, o);
        const std::vector<double> want = alone.to_vector<double>(), got = part(y).to_vector<double>();
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << b << " " << i;
        EXPECT_EQ(narrow(part(keys), 2, n, fresh).to_vector<float>(), part(more).to_vector<float>());
        EXPECT_EQ(narrow(part(keys), 2, 0, n).to_vector<float>(), narrow(part(k), 2, 0, n).to_vector<float>());
      }
    }
}

TEST(Cache, WritesOnlyWhatIsCounted) {
  Tensor cache = zeros({2, 1, 4, 1}), window = narrow(cache, 2, 1, 3);
  const Tensor x = ones({2, 1, 2, 1});
  cache_write_(window, x, whole({1, 0}), whole({1, 0}));
  EXPECT_EQ(cache.to_vector<float>(), std::vector<float>({0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_THROW(cache_write_(window, x, whole({2, 0})), IndexError);
  EXPECT_NO_THROW(cache_write_(window, x, whole({2, 99}), whole({1, 0})));
}

}  // namespace
}  // namespace strata
