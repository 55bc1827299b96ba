// The checker must pass right gradients and catch deliberately wrong ones.
#include "strata/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// x^3, with a right rule, a rule that is wrong for negative x only, one whose own gradient is wrong, and none.
void cube_kernel(Tensor& y, const Tensor& x) {
  copy_elements(y, x * x * x);
}
TensorMeta cube_infer(const Tensor& x) {
  return like(x);
}
const Op<Tensor(const Tensor&)> cube{{
    .schema = "test_cube(Tensor x) -> Tensor",
    .doc = "x cubed.",
    .infer = cube_infer,
    .kernels = {.cpu = cube_kernel},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * x * x * 3.0); },
}};
const Op<Tensor(const Tensor&)> cube_wrong{{
    .schema = "test_cube_wrong(Tensor x) -> Tensor",
    .doc = "x cubed with a wrong gradient.",
    .infer = cube_infer,
    .kernels = {.cpu = cube_kernel},
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x) {
          Tensor g = clone(b.gy() * x * x * 3.0).detach();
          for (int64_t i = 0; i < g.numel(); ++i)
            if (x.data<double>()[i] < 0) g.data<double>()[i] *= 1.01;
          b.set(0, g);
        },
}};
const Op<Tensor(const Tensor&)> cube_wrong_twice{{
    .schema = "test_cube_wrong_twice(Tensor x) -> Tensor",
    .doc = "x cubed with a right gradient that forgets that it depends on x.",
    .infer = cube_infer,
    .kernels = {.cpu = cube_kernel},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (x * x * 3.0).detach()); },
}};
const Op<Tensor(const Tensor&)> cube_silent{{
    .schema = "test_cube_silent(Tensor x) -> Tensor",
    .doc = "x cubed that records nothing.",
    .infer = cube_infer,
    .kernels = {.cpu = cube_kernel},
}};

Tensor input(const Shape& shape, uint64_t seed = 1) {
  Tensor x = Samples(DType::f64, seed).tensor(shape);
  x.set_requires_grad();
  return x;
}

TEST(Gradcheck, PassesRightGradients) {
  const auto fn = [](const TensorList& in) { return cube(in[0]) * in[1]; };
  const GradcheckResult r = gradcheck(fn, {input({3, 2}), input({2}, 2)});
  EXPECT_TRUE(r) << r.report;
  EXPECT_LT(r.worst_error, 1e-7);
  EXPECT_TRUE(gradgradcheck(fn, {input({3, 2}), input({2}, 2)}));
}

TEST(Gradcheck, SeveralOutputsAndIntegerInputs) {
  const auto fn = [](const TensorList& in) { return TensorList{in[0] * in[1], cube(in[0]), in[1]}; };
  EXPECT_TRUE(gradcheck(fn, {input({4}), full({4}, 3, DType::i64)}));
  EXPECT_TRUE(gradgradcheck(fn, {input({4}), full({4}, 3, DType::i64)}));
}

TEST(Gradcheck, CatchesAWrongGradientAndNamesTheWorstElement) {
  Tensor x = full({2, 3}, 1.0, DType::f64);
  x.data<double>()[4] = -1.5;
  x.data<double>()[2] = -0.5;
  x.set_requires_grad();
  const GradcheckResult r =
      gradcheck([](const TensorList& in) { return in[0] + cube_wrong(in[1]); }, {input({2, 3}), x});
  EXPECT_FALSE(r);
  EXPECT_NE(r.report.find("2 of 12 gradients differ"), std::string::npos) << r.report;
  EXPECT_NE(r.report.find("input 1 at [1, 1]"), std::string::npos) << r.report;
}

TEST(Gradcheck, CatchesAWrongSecondDerivative) {
  const auto fn = [](const TensorList& in) { return cube_wrong_twice(in[0]); };
  EXPECT_TRUE(gradcheck(fn, {input({5})}));
  const GradcheckResult r = gradgradcheck(fn, {input({5})});
  EXPECT_FALSE(r);
  EXPECT_NE(r.report.find("second derivatives"), std::string::npos) << r.report;
}

TEST(Gradcheck, CatchesAMissingGradient) {
  EXPECT_FALSE(gradcheck([](const TensorList& in) { return cube_silent(in[0]); }, {input({3})}));
  EXPECT_FALSE(gradcheck([](const TensorList& in) { return in[0] + cube(in[0].detach()); }, {input({3})}));
}

TEST(Gradcheck, CatchesANaN) {
  const auto fn = [](const TensorList& in) { return in[0] * std::numeric_limits<double>::quiet_NaN(); };
  EXPECT_FALSE(gradcheck(fn, {input({2})}));
}

TEST(Gradcheck, CatchesAFunctionThatIsNotDeterministic) {
  double calls = 0;
  const auto fn = [&](const TensorList& in) { return in[0] * Scalar(++calls); };
  const GradcheckResult r = gradcheck(fn, {input({2})});
  EXPECT_FALSE(r);
  EXPECT_NE(r.report.find("not deterministic"), std::string::npos) << r.report;
}

TEST(Gradcheck, LeavesTheInputsAlone) {
  const Tensor x = input({3});
  const Tensor before = clone(x.detach());
  EXPECT_TRUE(gradcheck([](const TensorList& in) { return cube(in[0]); }, {x}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(x.data<double>()[i], before.data<double>()[i]);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Gradcheck, WorksOnACard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Tensor x = linspace(-1, 1, 6, DType::f64).view({2, 3}).to(Device::cuda()).set_requires_grad();
  const auto right = [](const TensorList& in) { return exp(in[0] * in[0].sum()); };
  EXPECT_TRUE(gradcheck(right, {x})) << gradcheck(right, {x}).report;
  EXPECT_TRUE(gradgradcheck(right, {x})) << gradgradcheck(right, {x}).report;
  EXPECT_FALSE(gradcheck([](const TensorList& in) { return exp(in[0]) + in[0].detach() * in[0]; }, {x}));
}

TEST(Gradcheck, RefusesSinglePrecisionAndNothingToCheck) {
  const auto fn = [](const TensorList& in) { return cube(in[0]); };
  Tensor x = full({2}, 1.0);
  EXPECT_THROW(gradcheck(fn, {x}), ValueError);
  x.set_requires_grad();
  EXPECT_THROW(gradcheck(fn, {x}), DTypeError);
}

}  // namespace
}  // namespace strata
