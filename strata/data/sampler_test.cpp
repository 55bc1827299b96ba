#include "strata/data/sampler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "strata/core/error.h"

namespace strata::data {
namespace {

TEST(KeyedPermutation, IsABijection) {
  for (int64_t n = 0; n <= 300; ++n) {
    const KeyedPermutation order(n, static_cast<uint64_t>(n) * 7);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = order(i);
      ASSERT_GE(to, 0);
      ASSERT_LT(to, n);
      EXPECT_FALSE(seen[static_cast<size_t>(to)]) << n;
      seen[static_cast<size_t>(to)] = true;
    }
  }
  const int64_t n = 1'000'003;
  const KeyedPermutation order(n, 1);
  std::vector<bool> seen(n);
  int64_t distinct = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto to = static_cast<size_t>(order(i));
    distinct += !seen.at(to);
    seen[to] = true;
  }
  EXPECT_EQ(distinct, n);
}

TEST(KeyedPermutation, TakesVeryLargeSizes) {
  const int64_t n = int64_t{1} << 62;
  const KeyedPermutation order(n - 5, 3);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t to = order(n - 6 - i);
    EXPECT_TRUE(to >= 0 && to < n - 5);
    seen.insert(to);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_THROW(KeyedPermutation(-1, 0), ValueError);
}

// Every place of a list of 10 gets every element about equally often over 20,000 keys: chi-square with 81 degrees of
// freedom is above 130 with a probability of 0.04%, and the keys are fixed.
TEST(KeyedPermutation, SpreadsEvenly) {
  constexpr int n = 10, keys = 20'000;
  constexpr double expected = 2000;  // keys / n
  int counts[n][n] = {};
  for (int key = 0; key < keys; ++key) {
    const KeyedPermutation order(n, static_cast<uint64_t>(key));
    for (int i = 0; i < n; ++i) ++counts[i][order(i)];
  }
  double chi = 0;
  for (auto& row : counts)
    for (const int c : row) chi += (c - expected) * (c - expected) / expected;
  EXPECT_LT(chi, 130);
}

TEST(Sampler, DrawsEachOnceAnEpoch) {
  Sampler sampler(1000, 5, true);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    epochs.emplace_back();
    EXPECT_EQ(sampler.left(), 1000);
    for (int i = 0; i < 1000; ++i) {
      const Sample s = sampler.next();
      EXPECT_EQ(s.epoch, epoch);
      seen.insert(s.index);
      epochs.back().push_back(s.index);
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_EQ(*seen.rbegin(), 999);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  Sampler other(1000, 6, true), same(1000, 5, true);
  std::vector<int64_t> a, b;
  for (int i = 0; i < 1000; ++i) {
    a.push_back(other.next().index);
    b.push_back(same.next().index);
  }
  EXPECT_NE(a, epochs[0]);
  EXPECT_EQ(b, epochs[0]);
}

TEST(Sampler, InOrderWithoutShuffle) {
  Sampler sampler(3, 5, false);
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(sampler.next(), (Sample{i % 3, i / 3}));
}

TEST(Sampler, ResumesAtAnyPlace) {
  Sampler sampler(37, 9, true);
  for (int i = 0; i < 120; ++i) {
    Sampler resumed(37, 1234, true);  // another seed: the saved one counts
    resumed.set_state(parse_sampler_state(to_string(sampler.state())));
    Sampler ahead = sampler;
    for (int k = 0; k < 50; ++k) ASSERT_EQ(resumed.next(), ahead.next()) << i;
    sampler.next();
  }
}

TEST(Sampler, RefusesBadStates) {
  EXPECT_THROW(Sampler(0, 1, true), ValueError);
  Sampler sampler(10, 1, true);
  EXPECT_THROW(sampler.set_state({1, 0, 0, 11}), ValueError);
  EXPECT_THROW(sampler.set_state({1, 0, 10, 10}), ValueError);
  EXPECT_THROW(sampler.set_state({1, 0, -1, 10}), ValueError);
  EXPECT_THROW(sampler.set_state({1, -1, 0, 10}), ValueError);
  const SamplerState state{UINT64_MAX, 3, 4, 5};
  EXPECT_EQ(parse_sampler_state(to_string(state)), state);
  for (const char* bad : {"", "seed=1", "seed=1 epoch=0 position=0 size=", "seed=1 epoch=-1 position=0 size=5",
                          "seed=1 epoch=0 position=0 size=5 ", "seed=99999999999999999999 epoch=0 position=0 size=5"})
    EXPECT_THROW(parse_sampler_state(bad), ValueError) << bad;
}

}  // namespace
}  // namespace strata::data
