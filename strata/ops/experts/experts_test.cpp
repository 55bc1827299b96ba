// What records' samples do not say of routing and of products by groups.

#include "strata/ops/experts/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

TEST(OrderByExpert, PutsRowsOfAnExpertTogetherInTheirOrder) {
  const std::vector<int64_t> chosen{2, 0, 3, 2, 0, 2};
  const ExpertOrder o = order_by_expert(from_span<int64_t>(chosen, {3, 2}), 5);
  EXPECT_EQ(o.order.to_vector<int64_t>(), (std::vector<int64_t>{1, 4, 0, 3, 5, 2}));
  EXPECT_EQ(o.offsets.to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 2, 5, 6, 6}));
  EXPECT_EQ(index_select(o.order, 0, o.place).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  const ExpertOrder none = order_by_expert(zeros({0, 2}, DType::i64), 3);
  EXPECT_EQ(none.offsets.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_THROW(order_by_expert(zeros({2, 2}), 3), DTypeError);
  EXPECT_THROW(order_by_expert(zeros({2, 2}, DType::i64), 0), ValueError);
}

TEST(RouteExperts, EqualScoresGoToTheSmallerNumberAndWeightsSumToTheScale) {
  const auto [weights, experts] = route_experts(zeros({2, 6}), 3, {.scale = 1.5});
  EXPECT_EQ(experts.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  for (const double v : sum(weights, {1}).to_vector<double>()) EXPECT_NEAR(v, 1.5, 1e-6);
  // A bias moves the choice and not the weights.
  const Tensor bias = from_span<float>(std::vector<float>{0, 0, 0, 0, 1, 1}, {6});
  const auto [w2, e2] = route_experts(zeros({1, 6}), 2, {.scoring = "sigmoid", .normalize = false}, bias);
  EXPECT_EQ(e2.to_vector<int64_t>(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(w2.to_vector<float>(), (std::vector<float>{0.5f, 0.5f}));
}

// A layer of experts by these parts is each token through its experts, with its gradients.
TEST(Experts, OfTokensInAnyOrderAreTheirSingleProducts) {
  manual_seed(3);
  const int64_t tokens = 37, dim = 6, width = 10, count = 5, k = 2;
  const Tensor x = randn({tokens, dim}, DType::f64).set_requires_grad();
  const Tensor w = randn({count, width, dim}, DType::f64).set_requires_grad();
  const Tensor router = randn({count, dim}, DType::f64).set_requires_grad();
  const auto [weights, experts] = route_experts(linear(x, router), k);
  const ExpertOrder o = order_by_expert(experts, count);
  const Tensor rows = index_select(x, 0, floor_divide(o.order, k));
  const Tensor y = index_select(grouped_linear(rows, w, o.offsets), 0, o.place).view({tokens, k, width});
  const Tensor out = sum(y * weights.unsqueeze(2), {1});
  const std::vector<Tensor> got = [&] {
    sum(out * out).backward();
    return std::vector<Tensor>{x.grad().clone(), w.grad().clone(), router.grad().clone()};
  }();
  for (Tensor t : {x, w, router}) t.set_grad({});

  const auto [weights2, experts2] = route_experts(linear(x, router), k);
  const std::vector<int64_t> chosen = experts2.to_vector<int64_t>();
  Tensor loss = zeros({}, DType::f64);
  for (int64_t t = 0; t < tokens; ++t) {
    Tensor token = zeros({width}, DType::f64);
    for (int64_t j = 0; j < k; ++j) {
      const int64_t e = chosen[static_cast<size_t>(t * k + j)];
      token = token + matmul(w.select(0, e), x.select(0, t)) * weights2.select(0, t).select(0, j);
    }
    EXPECT_LT(amax(abs(token - out.select(0, t))).to_vector<double>()[0], 1e-12);
    loss = loss + sum(token * token);
  }
  loss.backward();
  size_t i = 0;
  for (const Tensor& t : {x, w, router}) EXPECT_LT(amax(abs(t.grad() - got[i++])).to_vector<double>()[0], 1e-9);
}

TEST(GroupedProducts, RefuseOffsetsThatAreNone) {
  const Tensor x = ones({4, 3}), w = ones({2, 5, 3});
  const auto offsets = [](std::vector<int64_t> v) { return from_span<int64_t>(v, {static_cast<int64_t>(v.size())}); };
  EXPECT_THROW(grouped_linear(x, w, offsets({0, 2, 3})), IndexError);
  EXPECT_THROW(grouped_linear(x, w, offsets({1, 2, 4})), IndexError);
  EXPECT_THROW(grouped_linear(x, w, offsets({0, 5, 4})), IndexError);
  EXPECT_THROW(grouped_outer(x, x, offsets({0, 3})), IndexError);
  EXPECT_THROW(grouped_linear(x, w.to(DType::f64), offsets({0, 2, 4})), DTypeError);
}

TEST(DispatchRows, RefusesPlacesThatAreNone) {
  const Tensor x = ones({2, 3});
  const auto at = [](std::vector<int64_t> v) { return from_span<int64_t>(v, {2, 1}); };
  EXPECT_THROW(dispatch_rows(x, at({0, 4}), 4), IndexError);
  EXPECT_THROW(dispatch_rows(x, at({1, 1}), 4), IndexError);
  EXPECT_THROW(combine_rows(x, at({0, 2})), IndexError);
  EXPECT_THROW(row_dots(x, x, at({0, 2})), IndexError);
  EXPECT_THROW(combine_rows(x, at({1, 1})), IndexError);
  EXPECT_THROW(row_dots(x, x, at({1, 1})), IndexError);
}

TEST(DispatchRows, InLowPrecisionAddsInF32) {
  // 256 + 1 is 256 in bf16, twice.
  const Tensor y = from_span<float>(std::vector<float>{256, 1, 1}, {3, 1}).to(DType::bf16);
  const Tensor place = from_span<int64_t>(std::vector<int64_t>{0, 1, 2}, {1, 3});
  EXPECT_EQ(combine_rows(y, place).to_vector<float>(), (std::vector<float>{258}));
}

// Slots of a group: different ones of each expert, 0 to how many it has; how many choices were left out.
int64_t dropped_of(const Tensor& experts, const Tensor& slots, int64_t count, int64_t capacity, int64_t rows) {
  const std::vector<int64_t> e = experts.to_vector<int64_t>(), s = slots.to_vector<int64_t>();
  const int64_t k = experts.size(1);
  int64_t dropped = 0;
  for (int64_t group = 0; group * rows < experts.size(0); ++group) {
    std::vector<std::vector<bool>> taken(static_cast<size_t>(count), std::vector<bool>(static_cast<size_t>(capacity)));
    for (int64_t i = group * rows * k; i < (group + 1) * rows * k; ++i) {
      const auto at = static_cast<size_t>(i);
      if (s[at] < 0) {
        ++dropped;
        continue;
      }
      EXPECT_LT(s[at], capacity);
      std::vector<bool>& of = taken[static_cast<size_t>(e[at])];
      EXPECT_FALSE(of[static_cast<size_t>(s[at])]);
      of[static_cast<size_t>(s[at])] = true;
      for (int64_t o = i / k * k; o < i; ++o)
        if (s[static_cast<size_t>(o)] >= 0) EXPECT_NE(e[static_cast<size_t>(o)], e[at]);
    }
    for (const auto& of : taken) EXPECT_TRUE(std::ranges::is_sorted(of, std::greater<>()));
  }
  return dropped;
}

// With as many places as choices nothing is left out once choices may go elsewhere, however uneven the router is.
TEST(ExpertSlots, ReroutedChoicesFillAllPlacesAndNoneIsLeftOut) {
  manual_seed(5);
  const int64_t count = 8, rows = 32, k = 2, capacity = rows * k / count;
  const Tensor logits = randn({3 * rows, count}) + arange(count, DType::f32);  // most like the last ones
  const Tensor chosen = std::get<1>(route_experts(logits, k));
  const auto [e, s] = expert_slots(chosen, logits, rows, capacity);
  EXPECT_EQ(e.to_vector<int64_t>(), chosen.to_vector<int64_t>());
  EXPECT_GT(dropped_of(e, s, count, capacity, rows), rows);
  const auto [e2, s2] = expert_slots(chosen, logits, rows, capacity, true);
  EXPECT_EQ(dropped_of(e2, s2, count, capacity, rows), 0);
  // What found room at first is where it was.
  const std::vector<int64_t> first = s.to_vector<int64_t>(), then = s2.to_vector<int64_t>(),
                             wanted = chosen.to_vector<int64_t>(), got = e2.to_vector<int64_t>();
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i] >= 0) EXPECT_TRUE(then[i] == first[i] && got[i] == wanted[i]) << i;
}

TEST(BalanceLoss, IsOneForEvenLoadsAndTheNumberOfExpertsForOne) {
  const Tensor even = full({4}, 6.0);
  EXPECT_NEAR(balance_loss(zeros({12, 4}), even).to_vector<double>()[0], 1, 1e-6);
  const Tensor all = from_span<float>(std::vector<float>{0, 24, 0, 0}, {4});
  const Tensor sure = all * 4.0 * ones({12, 1});
  EXPECT_NEAR(balance_loss(sure, all).to_vector<double>()[0], 4, 1e-5);
  EXPECT_NEAR(balance_loss(sure, all, "sigmoid").to_vector<double>()[0], 1.6, 1e-3);  // 1 of 1 + 3 / 2
}

// Operands of any strides.
TEST(GroupedProducts, TakeViews) {
  manual_seed(4);
  const Tensor x = randn({3, 8}).t(), w = randn({4, 3, 2}).transpose(0, 2).transpose(1, 2);  // [8, 3], [2, 4, 3]
  const Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 3, 8}, {3});
  const Tensor y = grouped_linear(x, w, offsets);
  EXPECT_EQ(y.to_vector<float>(), grouped_linear(x.contiguous(), w.contiguous(), offsets).to_vector<float>());
  EXPECT_EQ(grouped_outer(x, x, offsets).to_vector<float>(),
            grouped_outer(x.contiguous(), x.contiguous(), offsets).to_vector<float>());
}

}  // namespace
}  // namespace strata
