// Linear layers in fp8: scales, gradients, and what autocast's fp8 policy makes of them.
#include "strata/ops/matmul/linear_fp8.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/op_base.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/mlp.h"
#include "strata/ops/matmul/scaled.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// |a - b| over |b|, of all elements together.
double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
  return std::sqrt(((x - y) * (x - y)).sum().item() / (y * y).sum().item());
}
Tensor parameter(const Tensor& t) {
  Tensor p = t.clone();
  p.set_requires_grad();
  return p;
}

TEST(LinearFp8, ScalesArePowersOfTwoThatLeaveNothingPastTheLargest) {
  for (const Fp8 f : {kE4m3, kE5m2}) {
    const float largest = fp8_value(f.largest, f);
    for (const float amax : {1e-30F, 1e-8F, 0.7F, 1.0F, 1.75F, std::nextafter(1.75F, 2.0F), 448.0F, 449.0F, 3e38F}) {
      const float s = fp8_scale(amax, f);
      int power = 0;
      EXPECT_EQ(std::frexp(s, &power), 0.5F) << amax;
      EXPECT_LE(amax / s, largest) << amax;
      EXPECT_GT(amax / s * 2, largest) << amax;
    }
    EXPECT_EQ(fp8_scale(0, f), 1);
    EXPECT_GT(fp8_scale(1e-45F, f), 0);
    EXPECT_TRUE(std::isfinite(1 / fp8_scale(1e-45F, f)));
    EXPECT_TRUE(std::isnan(fp8_scale(INFINITY, f)) && std::isnan(fp8_scale(NAN, f)));
  }
}

TEST(LinearFp8, GradientsAreThoseOfTheLayerWithinTheFormatsRounding) {
  for (const char* scaling : {"tensor", "row"}) {
    const Tensor x0 = uniform({3, 37, 64}, -1, 1), w0 = uniform({48, 64}, -1, 1), b0 = uniform({48}, -1, 1),
                 g = uniform({3, 37, 48}, -1e-4, 1e-4);
    const Tensor x = parameter(x0), w = parameter(w0), b = parameter(b0), y = linear_fp8(x, w, b, scaling);
    const Tensor xx = parameter(x0), ww = parameter(w0), bb = parameter(b0), yy = linear(xx, ww, bb);
    EXPECT_LT(distance(y, yy), 0.06);
    y.backward(g);
    yy.backward(g);
    EXPECT_LT(distance(x.grad(), xx.grad()), 0.12);
    EXPECT_LT(distance(w.grad(), ww.grad()), 0.12);
    EXPECT_LT(distance(b.grad(), bb.grad()), 1e-5);
    EXPECT_EQ(w.grad().dtype(), DType::f32);
  }
}

TEST(LinearFp8, ARowsScaleKeepsSmallRowsExact) {
  Tensor x = full({4, 32}, 1e-5);
  x.select(0, 0).fill_(1000);
  const Tensor w = full({16, 32}, 1.0);
  const Tensor one = linear_fp8(x, w), each = linear_fp8(x, w, {}, "row");
  EXPECT_EQ(one.select(0, 1).to_vector<float>()[0], 0);  // below the smallest code
  EXPECT_NEAR(each.select(0, 1).to_vector<float>()[0], 32e-5, 32e-5 / 16);
}

TEST(LinearFp8, ZerosStayZeroAndWhatIsNotFiniteShows) {
  const Tensor w = parameter(zeros({16, 16})), x = parameter(zeros({3, 16}));
  const Tensor y = linear_fp8(x, w);
  y.backward(zeros({3, 16}));
  for (const Tensor& t : {y.detach(), x.grad(), w.grad()}) EXPECT_EQ(t.abs().sum().item(), 0);
  Tensor bad = uniform({3, 16}, -1, 1);
  bad.select(0, 1).fill_(INFINITY);
  EXPECT_TRUE(std::isnan(linear_fp8(bad, uniform({16, 16}, -1, 1)).sum().item()));
}

TEST(LinearFp8, ItsGradientHasNone) {
  const Tensor x = parameter(uniform({4, 16}, -1, 1)), w = uniform({16, 16}, -1, 1);
  const Tensor y = linear_fp8(x, w).sum();
  EXPECT_THROW(grad({y}, {x}, {}, true), AutogradError);
}

TEST(Fp8Policy, LinearLayersThatFitGoToFp8) {
  const Tensor x = uniform({8, 32}, -1, 1), w = parameter(uniform({16, 32}, -1, 1)),
               odd = parameter(uniform({10, 32}, -1, 1));
  const Tensor bias = parameter(uniform({16}, -1, 1));
  const Tensor low = x.to(DType::bf16);
  NoGrad guard;
  const Tensor in_bf16 = linear(low, w.to(DType::bf16), bias.to(DType::bf16));
  const Tensor in_fp8 = linear_fp8(low, w, bias.to(DType::bf16));
  ASSERT_FALSE(equal(in_bf16, in_fp8));
  {
    const AutocastScope scope{Fp8Options()};
    EXPECT_EQ(autocast_dtype(), DType::bf16);
    EXPECT_TRUE(equal(linear(x, w, bias), in_fp8));
    EXPECT_TRUE(equal(linear(x, odd), linear(low, odd.to(DType::bf16))));  // 10 is no multiple of 16
    EXPECT_TRUE(equal(linear(x.select(0, 0), w), linear(low.select(0, 0), w.to(DType::bf16))));  // one dimension
    {
      const AutocastScope off(DType::bf16);
      EXPECT_TRUE(equal(linear(x, w, bias), in_bf16));
    }
    EXPECT_TRUE(equal(linear(x, w, bias), in_fp8));
    EXPECT_TRUE(equal(gelu_mlp(x, w, bias, w.t().contiguous(), {}),
                      linear(gelu(linear(x, w, bias), "tanh"), w.t().contiguous())));
  }
  {
    const AutocastScope scope{Fp8Options{.exclude = {w}}};
    EXPECT_TRUE(equal(linear(x, w, bias), in_bf16));
  }
  {
    const AutocastScope scope{Fp8Options{.scaling = "row"}};
    EXPECT_TRUE(equal(linear(x, w, bias), linear_fp8(low, w, bias.to(DType::bf16), "row")));
  }
  EXPECT_THROW(AutocastScope(Fp8Options{.scaling = "block"}), ValueError);
  EXPECT_EQ(autocast_settings().fp8, nullptr);
}

TEST(Fp8Policy, GradientsArriveInF32OrLow) {
  const Tensor x = uniform({8, 32}, -1, 1), w = parameter(uniform({16, 32}, -1, 1)), b = parameter(zeros({16}));
  for (const bool low : {false, true}) {
    Tensor loss;
    {
      const AutocastScope scope(Fp8Options(), true, low);
      loss = linear(x, w, b).sum();
    }
    loss.backward();
    EXPECT_EQ(w.grad().dtype(), low ? DType::bf16 : DType::f32);
    EXPECT_EQ(b.grad().dtype(), low ? DType::bf16 : DType::f32);
    Tensor(w).set_grad({});
    Tensor(b).set_grad({});
  }
}

// Counts calls of one op.
struct Count : CallObserver {
  explicit Count(std::string op) : op(std::move(op)) {}
  void before(const Call& call) override { n += call.op.name() == op; }
  std::string op;
  int n = 0;
};

TEST(Fp8Policy, AWeightsCodesAreMadeOnceUntilItIsWritten) {
  const Tensor x = uniform({8, 16}, -1, 1), w = parameter(uniform({16, 16}, -1, 1));
  Count codes("fp8_codes");
  const ObserverScope watch(codes);
  {
    const Fp8WeightsScope step;
    for (int batch = 0; batch < 3; ++batch) {
      const AutocastScope scope{Fp8Options()};
      linear(x, w);
    }
    EXPECT_EQ(codes.n, 1);
    const AutocastScope scope{Fp8Options()};
    const Tensor before = linear(x, w);
    {
      NoGrad guard;
      Tensor(w).mul_(2.0);
    }
    EXPECT_FALSE(equal(linear(x, w).detach(), before.detach()));
    EXPECT_EQ(codes.n, 2);
  }
  const AutocastScope scope{Fp8Options()};
  linear(x, w);
  EXPECT_EQ(codes.n, 3);
}

TEST(Fp8Policy, ACheckpointRunsAgainAsItRan) {
  const Tensor x = parameter(uniform({8, 32}, -1, 1)), w = parameter(uniform({32, 32}, -1, 1));
  const auto layers = [&](const Tensor& t) { return linear(gelu(linear(t, w)), w); };
  const auto gradients = [&](bool again) {
    Tensor loss;
    {
      const AutocastScope scope{Fp8Options()};
      loss = (again ? checkpoint(layers, x) : layers(x)).sum();
    }
    loss.backward();
    const TensorList all{x.grad(), w.grad()};
    Tensor(x).set_grad({});
    Tensor(w).set_grad({});
    return all;
  };
  const TensorList plain = gradients(false), again = gradients(true);
  EXPECT_TRUE(equal(plain[0], again[0]) && equal(plain[1], again[1]));
}

}  // namespace
}  // namespace strata
