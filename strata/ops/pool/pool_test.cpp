#include "strata/ops/pool/pool.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/samples.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor values(std::vector<float> v, const Shape& shape) {
  return from_span(std::span<const float>(v), shape);
}

void expect_near(const Tensor& a, const Tensor& b, double bound = 1e-6) {
  ASSERT_EQ(to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_NEAR(x.data<double>()[i], y.data<double>()[i], bound) << "element " << i;
}

// Results worked out by hand from the formulas of PyTorch's documentation.
TEST(Pool, WorkedByHand) {
  const Tensor x = values({1, 5, 2, 4, 3}, {1, 1, 5});
  expect_near(max_pool1d(x, {2}), values({5, 4}, {1, 1, 2}));
  expect_near(max_pool1d(x, {2}, {}, {0}, {1}, true), values({5, 4, 3}, {1, 1, 3}));
  expect_near(max_pool1d(x, {3}, {2}, {1}), values({5, 5, 4}, {1, 1, 3}));
  expect_near(max_pool1d(x, {2}, {1}, {0}, {2}), values({2, 5, 3}, {1, 1, 3}));
  expect_near(avg_pool1d(x, {2}), values({3, 3}, {1, 1, 2}));
  expect_near(avg_pool1d(x, {3}, {2}, {1}), values({2, 11.0f / 3, 7.0f / 3}, {1, 1, 3}));
  expect_near(avg_pool1d(x, {3}, {2}, {1}, false, false), values({3, 11.0f / 3, 3.5}, {1, 1, 3}));
  expect_near(adaptive_avg_pool1d(x, {2}), values({8.0f / 3, 3}, {1, 1, 2}));
  expect_near(adaptive_max_pool1d(x, {2}), values({5, 4}, {1, 1, 2}));
}

TEST(Pool, InterpolateWorkedByHand) {
  const Tensor x = values({1, 2, 3, 4}, {1, 1, 2, 2});
  expect_near(interpolate(x, std::nullopt, 2.0),
              values({1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, {1, 1, 4, 4}));
  expect_near(interpolate(x, std::nullopt, 2.0, "bilinear"),
              values({1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}, {1, 1, 4, 4}));
  expect_near(interpolate(x, Dims{3, 3}, std::nullopt, "bilinear", true),
              values({1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4}, {1, 1, 3, 3}));
}

TEST(Pool, NanWinsAndTiesGoToTheFirst) {
  Tensor x = values({1, std::nanf(""), 3, 3, 3, 2}, {1, 1, 6});
  const auto [v, at] = max_pool(x, {3}, {3}, {0}, {1}, false);
  EXPECT_TRUE(std::isnan(v[0][0][0].item()));
  EXPECT_EQ(v[0][0][1].item(), 3);
  EXPECT_EQ(at[0][0][0].item<int64_t>(), 1);
  EXPECT_EQ(at[0][0][1].item<int64_t>(), 3);
}

TEST(Pool, MaxGradientGoesToTheWinner) {
  Tensor x = values({1, 5, 2, 4}, {1, 1, 4});
  x.set_requires_grad();
  max_pool1d(x, {2}).backward(values({10, 20}, {1, 1, 2}));
  expect_near(x.grad(), values({0, 10, 0, 20}, {1, 1, 4}));
}

TEST(Pool, NoPlanesOfAnySize) {
  EXPECT_EQ(adaptive_avg_pool2d(zeros({0, 2, 3, 5}), {int64_t{1} << 40, 1}).numel(), 0);
}

TEST(Pool, ManyPlanesOnManyThreads) {
  const Tensor x = Samples(DType::f32).tensor({16, 32, 20, 20});
  const Tensor y = avg_pool2d(x, {4});
  EXPECT_EQ(to_string(y.shape()), "[16, 32, 5, 5]");
  const Tensor part = avg_pool2d(x[7], {4});
  expect_near(y[7], part, 0);
}

}  // namespace
}  // namespace strata
