// Transforms: inverses, derivatives by differences, shapes; distributions of transformed values.

#include "strata/distributions/transform.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/distributions/make.h"
#include "strata/ops/ops.h"

namespace strata::distributions {
namespace {

Tensor t(const std::vector<double>& v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())});
}

// log |det dy / dx| of vectors, by the rows of the Jacobian; `keep` of y's numbers say all of it.
double log_det(const Transform& f, const Tensor& at, const Tensor& keep) {
  const Tensor x = at.detach().clone().set_requires_grad();
  const Tensor y = index_select(f(x).reshape({-1}), 0, keep);
  TensorList rows;
  for (int64_t i = 0; i < y.numel(); ++i) rows.push_back(grad({y.select(0, i)}, {x}, {}, false, true)[0].reshape({-1}));
  return std::get<1>(linalg_slogdet(stack(rows))).item<double>();
}

TEST(Transforms, OfElements) {
  const Tensor x = t({0.3, -0.7, 1.2});
  for (const Transform& f :
       {exp_transform(), sigmoid_transform(), tanh_transform(), softplus_transform(), affine_transform(1.0, -2.0),
        affine_transform(t({1, 2, 3}), t({1, -1, 2})), compose({affine_transform(0.5, 2.0), tanh_transform()}),
        exp_transform().inv().inv(), cumulative_transform(normal(t({0, 0, 0}), 2.0)),
        independent_transform(exp_transform(), 0), compose({})}) {
    SCOPED_TRACE(f.name());
    const Tensor y = f(x);
    EXPECT_TRUE(allclose(f.inverse(y), x, 1e-9));
    EXPECT_TRUE(allclose(f.inv()(y), x, 1e-9));
    const double h = 1e-6;
    const Tensor slope = (f(x + h) - f(x - h)) / (2 * h);
    const Tensor wanted = f.name() == "ComposeTransform" && f == compose({}) ? zeros_like(x) : log(abs(slope));
    EXPECT_TRUE(allclose(f.log_abs_det_jacobian(x, y), wanted, 1e-6, 1e-7));
    EXPECT_TRUE(allclose(f.inv().log_abs_det_jacobian(y, x), -wanted, 1e-6, 1e-7));
    const Given sign = f.sign();
    EXPECT_TRUE(all((sign.number ? slope * *sign.number : slope * sign.tensor) > 0).item<bool>());
    EXPECT_TRUE(f.bijective());
    EXPECT_EQ(f.forward_shape({4, 3}), (Shape{4, 3}));
    EXPECT_TRUE(all(f.codomain().check(y)).item<bool>());
  }
  const Transform power = power_transform(1.5);
  EXPECT_TRUE(allclose(power.inverse(power(t({0.5, 2}))), t({0.5, 2}), 1e-9));
  EXPECT_TRUE(allclose(power.log_abs_det_jacobian(t({4}), power(t({4}))), log(t({3})), 1e-9));
  EXPECT_EQ(power_transform(-1.0).sign().number, -1.0);
  EXPECT_TRUE(equal(abs_transform()(t({-1, 2})), t({1, 2})));
  EXPECT_THROW(abs_transform().sign(), NotDefined);
  EXPECT_THROW(softmax_transform().log_abs_det_jacobian(t({1, 2}), t({1, 2})), NotDefined);
}

TEST(Transforms, OfVectorsAndMatrices) {
  const Tensor x = t({0.3, -0.7, 1.2});
  const Transform sticks = stick_breaking_transform();
  EXPECT_NEAR(sum(sticks(x)).item<double>(), 1, 1e-12);
  EXPECT_TRUE(allclose(sticks.inverse(sticks(x)), x, 1e-9));
  EXPECT_NEAR(sticks.log_abs_det_jacobian(x, sticks(x)).item<double>(), log_det(sticks, x, strata::arange(0, 3)), 1e-9);
  EXPECT_EQ(sticks.forward_shape({2, 3}), (Shape{2, 4}));
  EXPECT_EQ(sticks.inverse_shape({2, 3}), (Shape{2, 2}));

  const Transform corr = corr_cholesky_transform();
  const Tensor l = corr(x);
  EXPECT_EQ(l.shape(), (Shape{3, 3}));
  EXPECT_TRUE(corr.codomain().check(l).item<bool>()) << l.to_string();
  EXPECT_TRUE(allclose(corr.inverse(l), x, 1e-9));
  const std::vector<int64_t> under{3, 6, 7};
  EXPECT_NEAR(corr.log_abs_det_jacobian(x, l).item<double>(), log_det(corr, x, from_span<int64_t>(under, {3})), 1e-9);
  EXPECT_EQ(corr.forward_shape({2, 6}), (Shape{2, 4, 4}));
  EXPECT_EQ(corr.inverse_shape({2, 4, 4}), (Shape{2, 6}));
  EXPECT_THROW(corr(t({1, 2})), ValueError);
  EXPECT_EQ(corr(strata::zeros({5, 6}, DType::f64)).shape(), (Shape{5, 4, 4}));

  const Tensor m = from_span<double>(std::vector<double>{0.3, 9, -0.5, 0.8}, {2, 2});
  for (const Transform& f : {lower_cholesky_transform(), positive_definite_transform()}) {
    EXPECT_TRUE(f.codomain().check(f(m)).item<bool>()) << f.name();
    EXPECT_TRUE(allclose(f.inverse(f(m)), tril(m), 1e-9));
  }
  EXPECT_TRUE(allclose(sum(softmax_transform()(x)), t({1}).reshape({})));
  const Transform flat = reshape_transform({2, 2}, {4});
  EXPECT_EQ(flat(strata::zeros({3, 2, 2})).shape(), (Shape{3, 4}));
  EXPECT_EQ(flat.inverse(strata::zeros({3, 4})).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(flat.log_abs_det_jacobian(strata::zeros({3, 2, 2}), strata::zeros({3, 4})).shape(), (Shape{3}));
  EXPECT_THROW(reshape_transform({2, 2}, {5}), ValueError);
  EXPECT_THROW(flat.forward_shape({3, 3}), ShapeError);
}

TEST(Transforms, MadeOfOthers) {
  const Tensor x = t({0.3, -0.7, 1.2});
  const Transform chain = compose({affine_transform(0.5, 2.0), stick_breaking_transform()});
  EXPECT_EQ(chain.domain().event_dim(), 1);
  EXPECT_NEAR(chain.log_abs_det_jacobian(x, chain(x)).item<double>(), log_det(chain, x, strata::arange(0, 3)), 1e-9);
  const Transform whole = independent_transform(exp_transform(), 1);
  EXPECT_NEAR(whole.log_abs_det_jacobian(x, whole(x)).item<double>(), 0.8, 1e-9);
  const Transform pieces = cat_transform({exp_transform(), tanh_transform()}, 0, {1, 2});
  EXPECT_TRUE(allclose(pieces(x), strata::cat({exp(x.narrow(0, 0, 1)), tanh(x.narrow(0, 1, 2))})));
  EXPECT_TRUE(allclose(pieces.inverse(pieces(x)), x, 1e-9));
  EXPECT_TRUE(allclose(pieces.log_abs_det_jacobian(x, pieces(x)).narrow(0, 0, 1), x.narrow(0, 0, 1)));
  EXPECT_THROW(pieces(t({1, 2})), ShapeError);
  const Transform slices = stack_transform({exp_transform(), sigmoid_transform()}, -1);
  const Tensor two = stack({x, x}, -1);
  EXPECT_TRUE(allclose(slices(two), stack({exp(x), sigmoid(x)}, -1)));
  EXPECT_TRUE(exp_transform() == exp_transform());
  EXPECT_TRUE(affine_transform(1.0, 2.0) == affine_transform(1.0, 2.0));
  EXPECT_FALSE(affine_transform(1.0, 2.0) == affine_transform(1.0, 3.0));
  EXPECT_FALSE(exp_transform() == tanh_transform());
  EXPECT_TRUE(compose({exp_transform()}).inv() == compose({exp_transform()}).inv());
  EXPECT_THROW(make_transform("ExTransform"), ValueError);
  EXPECT_THROW(make_transform("AffineTransform"), ValueError);
  EXPECT_EQ(transform_record("ExpTransform").sign, 1);
  for (const TransformRecord& r : transform_records()) EXPECT_TRUE(r.forward && r.inverse && !r.doc.empty()) << r.name;
}

TEST(Transforms, Distributions) {
  const Tensor one = t({1});
  const Distribution log = transformed(normal(t({0.3}), 0.8), {exp_transform()}), closed = log_normal(t({0.3}), 0.8);
  const Tensor x = t({0.4, 1.5, 3});
  EXPECT_TRUE(allclose(log.log_prob(x), closed.log_prob(x), 1e-9));
  EXPECT_TRUE(allclose(log.cdf(x), closed.cdf(x), 1e-9));
  EXPECT_TRUE(allclose(log.icdf(t({0.2, 0.7})), closed.icdf(t({0.2, 0.7})), 1e-9));
  EXPECT_EQ(log.support().text(), "GreaterThan(lower_bound=0.0)");
  const Distribution falling = transformed(normal(t({0.0}), 1.0), {affine_transform(1.0, -2.0)});
  EXPECT_TRUE(allclose(falling.cdf(x), normal(1.0, 2.0).cdf(x), 1e-6));
  EXPECT_TRUE(allclose(falling.icdf(t({0.2, 0.7})), normal(one, 2.0).icdf(t({0.2, 0.7})), 1e-9));

  const Distribution shares = transformed(normal(strata::zeros({4, 2}, DType::f64), 1.0), {stick_breaking_transform()});
  EXPECT_EQ(shares.batch_shape(), (Shape{4}));
  EXPECT_EQ(shares.event_shape(), (Shape{3}));
  const Distribution logistic = logistic_normal(strata::zeros({4, 2}, DType::f64), 1.0);
  Generator g(3), same(3);
  const Tensor drawn = shares.rsample({5}, g);
  EXPECT_TRUE(allclose(drawn, logistic.sample({5}, same)));
  EXPECT_TRUE(allclose(shares.log_prob(drawn), logistic.log_prob(drawn), 1e-9));
  EXPECT_EQ(shares.expand({3, 4}).sample({2}).shape(), (Shape{2, 3, 4, 3}));
  const Distribution other = transformed(normal(t({1.3}), 0.8), {exp_transform()});
  EXPECT_NEAR(kl_divergence(log, other).item<double>(), 0.5 / 0.64, 1e-9);
  EXPECT_THROW(kl_divergence(log, falling), NotDefined);
  EXPECT_THROW(transformed(normal(0.0, 1.0), {stick_breaking_transform()}), ValueError);
  EXPECT_THROW(log.entropy(), NotDefined);
  // A density is that of uniform numbers through the inverse of the cumulative one.
  const Distribution back = transformed(uniform(t({0.0}), 1.0), {cumulative_transform(gumbel(t({0.3}), 0.7)).inv()});
  EXPECT_TRUE(allclose(back.log_prob(x), gumbel(t({0.3}), 0.7).log_prob(x), 1e-9));
}

}  // namespace
}  // namespace strata::distributions
