// What CUDA kernels share with the CPU: means of sums, rows traced through exchanges, stretches of a line.

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/ops/index/join_inl.h"
#include "strata/ops/linalg/permutation_inl.h"
#include "strata/ops/reduce/running_inl.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(Places, MeansOfSums) {
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
