#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/statistics/statistics.h"
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

// Numbers with ties of every dtype, both zeros and, of floating ones, NaN.
Tensor many(DType t, int64_t n) {
  const bool small = t == DType::i8 || t == DType::u8;
  Tensor x = randint(t == DType::u8 || t == DType::boolean ? 0 : -100, small ? 100 : 1000, {n});
  if (is_floating(t)) {
    x = x.to(DType::f64) / 7.0;
    x.slice(0, 0, n, 5).fill_(-0.0);
    x.slice(0, 1, n, 5).fill_(0.0);
    x.slice(0, 2, n, 97).fill_(NAN);
    x.slice(0, 3, n, 101).fill_(-INFINITY);
  }
  if (t == DType::i64) x.slice(0, 0, n, 11).fill_(INT64_MIN);
  return x.to(t);
}

TEST(Sort, LongRowsOfEveryDtypeAsAStableSort) {
  manual_seed(5);
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16, DType::i32,
                        DType::i64, DType::boolean}) {
    for (const bool descending : {false, true}) {
      const Tensor x = many(t, 3001);
      const auto given = x.to_vector<double>();
      Ints want(given.size());
      for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int64_t>(i);
      const auto below = [&](int64_t a, int64_t b) {
        const double p = given[static_cast<size_t>(a)], q = given[static_cast<size_t>(b)];
        return p < q || (q != q && p == p);
      };
      std::stable_sort(want.begin(), want.end(),
                       [&](int64_t a, int64_t b) { return descending ? below(b, a) : below(a, b); });
      const auto [values, places] = sort(x, 0, descending);
      EXPECT_EQ(places.to_vector<int64_t>(), want) << static_cast<int>(t) << descending;
      const auto sorted = values.to_vector<double>();
      for (size_t i = 0; i < want.size(); ++i) {
        const double v = given[static_cast<size_t>(want[i])];
        EXPECT_TRUE(sorted[i] == v || (v != v && sorted[i] != sorted[i])) << static_cast<int>(t) << " " << i;
      }
    }
  }
}

TEST(Sort, UniqueOfManyElementsGivesThemBack) {
  manual_seed(6);
  for (const DType t :
       {DType::f32, DType::f64, DType::f16, DType::i8, DType::u8, DType::i16, DType::i64, DType::boolean}) {
    const Tensor x = many(t, 5000);
    const auto [values, inverse, counts] = unique(x, true, true);
    const auto given = x.to_vector<double>(), found = values.to_vector<double>();
    const Ints at = inverse.to_vector<int64_t>();
    Ints often(found.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const double v = found[static_cast<size_t>(at[i])];
      EXPECT_TRUE(v == given[i] || (v != v && given[i] != given[i]));
      ++often[static_cast<size_t>(at[i])];
    }
    EXPECT_EQ(counts.to_vector<int64_t>(), often);
    for (size_t i = 1; i < found.size(); ++i) EXPECT_FALSE(found[i] <= found[i - 1]) << static_cast<int>(t);
  }
}

TEST(Sort, MedianOfManyElements) {
  manual_seed(7);
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::i8, DType::i16, DType::i32, DType::i64}) {
    const Tensor x = many(t, 140001);
    auto numbers = x.to_vector<double>();
    std::erase_if(numbers, [](double v) { return v != v; });
    std::sort(numbers.begin(), numbers.end());
    const double want = numbers[(numbers.size() - 1) / 2];
    EXPECT_EQ(nanmedian(x).to_vector<double>()[0], want) << static_cast<int>(t);
    const double whole = median(x).to_vector<double>()[0];
    EXPECT_TRUE(is_floating(t) ? whole != whole : whole == want) << static_cast<int>(t);
    EXPECT_EQ(std::get<0>(nanmedian(x, 0)).to_vector<double>()[0], want) << static_cast<int>(t);
  }
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
