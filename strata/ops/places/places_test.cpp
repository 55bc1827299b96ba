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

// Of no, one, two and three zeros, sent or there before: by the products of all others, whether or not the gradient is
// to be differentiated.
TEST(Places, GradientsOfProductsWithZeros) {
  const std::vector<double> from = {2, 0, 3, 0, 5, 1.5, -2, 0}, sent = {0, 4, 0, 0, 7, 0, -3, 2, 0.5, 6};
  const std::vector<int64_t> places = {0, 0, 1, 1, 2, 2, 4, 4, 7, 7};
  for (const bool include_self : {true, false}) {
    std::vector<double> want_x(from.size(), 0), want_s(sent.size(), 0);
    const auto product = [&](size_t place, bool with_self, size_t but) {
      double p = with_self ? from[place] : 1;
      for (size_t i = 0; i < sent.size(); ++i)
        if (i != but && static_cast<size_t>(places[i]) == place) p *= sent[i];
      return p;
    };
    for (size_t k = 0; k < from.size(); ++k) {
      bool alone = true;
      for (const int64_t p : places) alone = alone && static_cast<size_t>(p) != k;
      want_x[k] = alone ? 1 : include_self ? product(k, false, sent.size()) : 0;
    }
    for (size_t i = 0; i < sent.size(); ++i) want_s[i] = product(static_cast<size_t>(places[i]), include_self, i);
    for (const bool create_graph : {false, true}) {
      Tensor x = from_span<double>(from, {8}), src = from_span<double>(sent, {10});
      x.set_requires_grad();
      src.set_requires_grad();
      const Tensor y = scatter_reduce(x, 0, from_span<int64_t>(places, {10}), src, "prod", include_self);
      const TensorList g = grad({y.sum()}, {x, src}, {}, create_graph);
      for (size_t k = 0; k < 2; ++k) {
        const std::vector<double> got = g[k].to_vector<double>(), &want = k == 0 ? want_x : want_s;
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(got[i], want[i], 1e-12) << include_self << create_graph << k << " " << i;
      }
    }
  }
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
