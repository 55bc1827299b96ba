// What CUDA kernels share with the CPU: values joined several at once, rows traced through exchanges.

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/ops/index/join_inl.h"
#include "strata/ops/linalg/permutation_inl.h"
#include "strata/ops/reduce/running_inl.h"
#include "strata/strata.h"

namespace strata {
namespace {

template <class C, bool kCounted>
void compare(Join join, int64_t seed) {
  manual_seed(static_cast<uint64_t>(seed));
  const std::vector<int64_t> at = randint(0, 5, {64}).to_vector<int64_t>();
  const std::vector<double> sent = randint(-3, 4, {64}).to(DType::f64).to_vector<double>();
  std::vector<C> total(5, C(2)), want = total;
  std::vector<int32_t> count(5, kCounted ? 0 : 1), had = count;
  for (size_t i = 0; i < at.size(); i += 4) {
    int32_t place[4];
    C value[4];
    for (size_t k = 0; k < 4; ++k) {
      place[k] = static_cast<int32_t>(at[i + k]);
      value[k] = static_cast<C>(sent[i + k]);
    }
    join_in_turn<4, kCounted>(join, place, value, total.data(), count.data());
    for (size_t k = 0; k < 4; ++k) {
      C& to = want[static_cast<size_t>(place[k])];
      to = kCounted && had[static_cast<size_t>(place[k])]++ == 0 ? value[k] : joined(join, to, value[k]);
    }
  }
  EXPECT_EQ(total, want);
  if constexpr (kCounted) {
    EXPECT_EQ(count, had);
  }
}

TEST(Places, JoinedAtOnceAsInTurn) {
  for (int64_t seed = 0; seed < 20; ++seed)
    for (const Join join : {Join::sum, Join::prod, Join::amax, Join::amin}) {
      compare<float, false>(join, seed);
      compare<float, true>(join, seed);
      compare<int64_t, false>(join, seed);
      compare<int64_t, true>(join, seed);
    }
  EXPECT_EQ(mean_of(int64_t{-7}, 2), -4);
  EXPECT_EQ(mean_of(7.0, 2), 3.5);
  EXPECT_EQ(mean_of(7.0, 0), 7.0);
}

TEST(Places, RowsTracedThroughExchanges) {
  const std::vector<int32_t> pivots = {5, 3, 3, 6, 5};
  const Tensor all = from_span<int32_t>(pivots, {5});
  const std::vector<int64_t> order = lu_permutation(all, 7).to_vector<int64_t>();
  for (int64_t row = 0; row < 7; ++row)
    EXPECT_EQ(linalg::row_before(pivots.data(), 5, 7, row), order[static_cast<size_t>(row)]) << row;
}

TEST(Places, StretchesOfALine) {
  // Of any cut the same sums.
  const std::vector<double> x = {0.5, -3, 2, 700, 701, -std::numeric_limits<double>::infinity(), 3};
  for (size_t cut = 0; cut <= x.size(); ++cut) {
    ExpSum<double> left, right;
    LinearSteps first, second;
    for (size_t i = 0; i < x.size(); ++i) {
      (i < cut ? left : right) = then(i < cut ? left : right, exp_of(x[i]));
      LinearSteps& part = i < cut ? first : second;
      part = then(part, LinearSteps{static_cast<double>(i % 3), 1 + static_cast<double>(i)});
    }
    EXPECT_NEAR(log_of(then(left, right)), 701 + std::log1p(std::exp(-1.0)), 1e-12);
    EXPECT_EQ(then(first, second).term, 7);  // the last factor is 0
  }
  EXPECT_EQ(log_of(ExpSum<double>()), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace strata
