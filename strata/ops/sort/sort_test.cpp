#include <gtest/gtest.h>

#include <cmath>

#include "strata/autograd/autograd.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

TEST(Sort, IsStableAndPutsNanLast) {
  const Tensor x = from_span<float>(Floats{2, NAN, 1, 2, -INFINITY, 1}, {6});
  const auto [up, from] = sort(x);
  EXPECT_EQ(from.to_vector<int64_t>(), Ints({4, 2, 5, 0, 3, 1}));
  EXPECT_TRUE(std::isnan(up.to_vector<float>()[5]));
  EXPECT_EQ(argsort(x, 0, true).to_vector<int64_t>(), Ints({1, 0, 3, 2, 5, 4}));
}

TEST(Sort, TopkAgreesWithSortForEveryK) {
  manual_seed(3);
  const Tensor x = randint(0, 20, {3, 200});  // many ties
  const auto [all, places] = sort(x, 1, true);
  for (const int64_t k : {1, 2, 3, 50, 199, 200}) {
    const auto [v, i] = topk(x, k, 1);
    EXPECT_EQ(v.to_vector<int64_t>(), all.slice(1, 0, k).to_vector<int64_t>()) << k;
    EXPECT_EQ(i.to_vector<int64_t>(), places.slice(1, 0, k).to_vector<int64_t>()) << k;
  }
  const auto [low, at] = topk(x, 7, 1, false);
  EXPECT_EQ(low.to_vector<int64_t>(), std::get<0>(sort(x, 1)).slice(1, 0, 7).to_vector<int64_t>());
}

TEST(Sort, KthvalueAlongAnInnerDimension) {
  const Tensor x = from_span<float>(Floats{5, 1, 3, 2, 4, 6}, {3, 2});
  const auto [v, i] = kthvalue(x, 2, 0);
  EXPECT_EQ(v.to_vector<float>(), Floats({4, 2}));
  EXPECT_EQ(i.to_vector<int64_t>(), Ints({2, 1}));
}

TEST(Sort, UniqueWithInverseAndCounts) {
  const Tensor x = from_span<int64_t>(Ints{3, 1, 3, 2, 1, 3}, {2, 3});
  const auto [values, inverse, counts] = unique(x, true, true);
  EXPECT_EQ(values.to_vector<int64_t>(), Ints({1, 2, 3}));
  EXPECT_EQ(inverse.shape(), x.shape());
  EXPECT_EQ(inverse.to_vector<int64_t>(), Ints({2, 0, 2, 1, 0, 2}));
  EXPECT_EQ(counts.to_vector<int64_t>(), Ints({2, 1, 3}));
  EXPECT_EQ(unique(from_span<float>(Floats{NAN, NAN}, {2})).values.numel(), 2);
}

TEST(Sort, SearchsortedByRows) {
  const Tensor sorted = from_span<float>(Floats{1, 3, 5, 2, 4, 6}, {2, 3}),
               values = from_span<float>(Floats{3, 9, 2, 1}, {2, 2});
  EXPECT_EQ(searchsorted(sorted, values).to_vector<int64_t>(), Ints({1, 3, 0, 0}));
  EXPECT_EQ(searchsorted(sorted, values, true).to_vector<int64_t>(), Ints({2, 3, 1, 0}));
}

TEST(Sort, GradientGoesBackToThePlaces) {
  Tensor x = from_span<float>(Floats{3, 1, 2}, {3}).set_requires_grad();
  sum(std::get<0>(topk(x, 2)).slice(0, 1, 2)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), Floats({0, 0, 1}));
}

}  // namespace
}  // namespace strata
