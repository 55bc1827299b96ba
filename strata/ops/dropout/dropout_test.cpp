// What the generated tests of dropout do not cover: its rate, its levels, its keys.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/parallel.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

int64_t zeros_in(const Tensor& t) {
  int64_t n = 0;
  for (int64_t i = 0; i < t.numel(); ++i) n += t.data<float>()[i] == 0;
  return n;
}

TEST(Dropout, RateIsP) {
  const int64_t n = 200000;
  for (double p : {0.1, 0.5, 0.9}) {
    const int64_t dropped = zeros_in(dropout(ones({n}), p, RngKey{1, 0}));
    // Within five standard deviations.
    EXPECT_NEAR(static_cast<double>(dropped), p * n, 5 * std::sqrt(n * p * (1 - p)));
  }
}

TEST(Dropout, EqualOnEveryLevelAndNumberOfThreads) {
  const int before = num_threads();
  const Tensor want = dropout(ones({10007}), 0.3, RngKey{5, 2});
  for (int64_t i = 0; i < want.numel(); ++i) {
    const bool keep = uniform_f32(philox({5, 2}, static_cast<uint64_t>(i) / 4)[static_cast<size_t>(i % 4)]) >= 0.3f;
    ASSERT_EQ(want.data<float>()[i] != 0, keep) << i;
  }
  for (int level = 0; level <= 3; ++level)
    for (int threads : {1, 3}) {
      set_vec_level(level);
      set_num_threads(threads);
      const Tensor got = dropout(ones({10007}), 0.3, RngKey{5, 2});
      for (int64_t i = 0; i < want.numel(); ++i) ASSERT_EQ(got.data<float>()[i], want.data<float>()[i]);
    }
  set_vec_level(-1);
  set_num_threads(before);
}

TEST(Dropout, DrawsNewKeysAndKeepsXInEvaluation) {
  manual_seed(3);
  const Tensor x = ones({1000}), a = dropout(x, 0.5), b = dropout(x, 0.5);
  int64_t differ = 0;
  for (int64_t i = 0; i < 1000; ++i) differ += a.data<float>()[i] != b.data<float>()[i];
  EXPECT_GT(differ, 300);
  manual_seed(3);
  const Tensor again = dropout(x, 0.5);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(again.data<float>()[i], a.data<float>()[i]);
  EXPECT_TRUE(dropout(x, 0.5, false).same_as(x));
}

}  // namespace
}  // namespace strata
