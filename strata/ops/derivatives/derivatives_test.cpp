// Jacobians, Hessians and their products against derivatives by hand.

#include "strata/ops/derivatives/derivatives.h"

#include <gtest/gtest.h>

#include "strata/core/compare_test_util.h"
#include "strata/core/error.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor numbers(const std::vector<double>& v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())});
}
std::vector<double> values(const Tensor& t) {
  return t.to_vector<double>();
}

// (a b, sum a^2): derivatives are known by hand.
const auto pair_of = [](const TensorList& in) { return TensorList{in[0] * in[1], sum(in[0] * in[0])}; };

TEST(Functional, ProductsFromTheLeft) {
  const Tensor a = numbers({1, -2, 3}), b = numbers({4, 5, -6});
  const auto [y, g] = vjp(pair_of, {a, b}, {numbers({1, 2, 3}), full({}, 0.5, DType::f64)});
  EXPECT_EQ(values(y[0]), std::vector<double>({4, -10, -18}));
  EXPECT_EQ(y[1].item(), 14);
  EXPECT_EQ(values(g[0]), std::vector<double>({1 * 4 + 1, 2 * 5 - 2, 3 * -6 + 3}));
  EXPECT_EQ(values(g[1]), std::vector<double>({1, -4, 9}));
  EXPECT_FALSE(g[0].requires_grad());
  EXPECT_FALSE(a.requires_grad());
  EXPECT_THROW(vjp(pair_of, {a, b}, {numbers({1, 2}), full({}, 0.5, DType::f64)}), ShapeError);
}

TEST(Functional, ProductsFromTheRight) {
  const Tensor a = numbers({1, -2, 3}), b = numbers({4, 5, -6});
  const auto [y, d] = jvp(pair_of, {a, b}, {numbers({1, 0, 2}), numbers({0, 1, 0})});
  EXPECT_EQ(values(d[0]), std::vector<double>({4, -2, -12}));
  EXPECT_EQ(d[1].item(), 2 * (1 * 1 + 3 * 2));
  EXPECT_THROW(jvp(pair_of, {a, b}, {numbers({1, 0, 2})}), ShapeError);
}

TEST(Functional, WholeMatrices) {
  const Tensor a = numbers({1, -2, 3}), b = numbers({4, 5, -6});
  const auto j = jacobian(pair_of, {a, b});
  EXPECT_EQ(values(j[0][0]), std::vector<double>({4, 0, 0, 0, 5, 0, 0, 0, -6}));
  EXPECT_EQ(values(j[0][1]), std::vector<double>({1, 0, 0, 0, -2, 0, 0, 0, 3}));
  EXPECT_EQ(values(j[1][0]), std::vector<double>({2, -4, 6}));
  EXPECT_EQ(values(j[1][1]), std::vector<double>({0, 0, 0}));
  EXPECT_EQ(jacobian(pair_of, {numbers({}), numbers({})})[0][0].shape(), Shape({0, 0}));

  // sum a^3 b
  const auto f = [](const TensorList& in) { return sum(in[0] * in[0] * in[0] * in[1]); };
  const auto h = hessian(f, {a, b});
  EXPECT_EQ(values(h[0][0]), std::vector<double>({24, 0, 0, 0, -60, 0, 0, 0, -108}));
  EXPECT_EQ(values(h[0][1]), std::vector<double>({3, 0, 0, 0, 12, 0, 0, 0, 27}));
  EXPECT_EQ(values(h[1][0]), values(h[0][1]));
  EXPECT_EQ(values(h[1][1]), std::vector<double>(9, 0.0));
  const auto [y, hv] = hvp(f, {a, b}, {numbers({1, 1, 1}), numbers({0, 1, 0})});
  EXPECT_EQ(values(hv[0]), std::vector<double>({24, -60 + 12, -108}));
  EXPECT_EQ(values(hv[1]), std::vector<double>({3, 12, 27}));
  EXPECT_THROW(hessian(pair_of, {a, b}), ShapeError);
}

TEST(Functional, ResultsCanBeDifferentiated) {
  Tensor a = numbers({2});
  a.set_requires_grad();
  const auto [y, g] = vjp([](const TensorList& in) { return sum(in[0] * in[0] * in[0]); }, {a}, {}, true);
  sum(g[0]).backward();
  EXPECT_EQ(a.grad().item(), 12);
}

TEST(Functional, StrictWantsEveryInput) {
  const Tensor a = numbers({2}), b = numbers({3});
  const auto of_a = [](const TensorList& in) { return sum(in[0] * in[0]); };
  EXPECT_EQ(values(jacobian(of_a, {a, b})[0][1]), std::vector<double>({0}));
  EXPECT_THROW(jacobian(of_a, {a, b}, false, true), AutogradError);
  EXPECT_THROW(vjp(of_a, {a, b}, {}, false, true), AutogradError);
  EXPECT_THROW(jvp(of_a, {a, b}, {}, false, true), AutogradError);
  EXPECT_THROW(hvp(of_a, {a, b}, {}, false, true), AutogradError);
  EXPECT_THROW(hessian(of_a, {a, b}, false, true), AutogradError);
  EXPECT_EQ(values(jacobian(of_a, {a}, false, true)[0][0]), std::vector<double>({4}));
}

}  // namespace
}  // namespace strata
