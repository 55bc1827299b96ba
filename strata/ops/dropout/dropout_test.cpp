// What the generated tests of dropout do not cover: its rate, its levels, its keys.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/core/row_share.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"
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

// Rows of a batch in parts, in any order: the whole batch's mask, also of what follows.
TEST(Dropout, PartsOfABatchHaveTheWholeBatchsNumbers) {
  const Tensor x = ones({8, 6, 10});
  const auto call = [](const Tensor& t) { return std::vector<Tensor>{dropout(t, 0.5), dropout(t, 0.3)}; };
  manual_seed(9);
  const std::vector<Tensor> want = call(x);
  const RngKey behind = default_generator().state();
  for (const auto& [first, own] : {std::pair<int64_t, int64_t>(4, 4), {0, 4}, {2, 1}, {7, 1}, {0, 8}}) {
    SCOPED_TRACE(first);
    manual_seed(9);
    {
      const RowShareScope rows({.first = first, .own = own, .all = 8});
      EXPECT_EQ(row_share(), (RowShare{first, own, 8}));
      const std::vector<Tensor> got = call(x.narrow(0, first, own));
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(equal(got[i], want[i].narrow(0, first, own))) << i;
    }
    EXPECT_EQ(row_share(), RowShare());
    EXPECT_EQ(default_generator().state(), behind);
  }
  // Other generators have nothing to do with it.
  Generator one(4), other(4);
  const RowShareScope rows({.first = 1, .own = 1, .all = 2});
  EXPECT_EQ(one.next(5), (RngKey{4, 0}));
  EXPECT_EQ(one.state().offset, 5U);
  for (const RowShare& bad : {RowShare{-1, 1, 2}, {0, 0, 2}, {1, 2, 2}, {0, 1, 0}}) EXPECT_THROW(RowShareScope{bad}, ValueError);
  EXPECT_EQ(row_share(), (RowShare{1, 1, 2}));
}

}  // namespace
}  // namespace strata
