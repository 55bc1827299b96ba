// User-defined functions, and anomaly mode on them and on ops.
#include "strata/autograd/function.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "strata/autograd/anomaly.h"
#include "strata/autograd/autograd.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/error_test_util.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

Tensor input(const Shape& shape, uint64_t seed = 1) {
  return Samples(DType::f64, seed).tensor(shape).set_requires_grad();
}
Tensor leaf(std::vector<double> v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())}).set_requires_grad();
}
double first(const Tensor& t) {
  return *t.data<double>();
}
struct Square : Function<Square> {
  static Tensor forward(Ctx& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) { return {gy[0] * ctx.saved_tensors()[0] * 2.0}; }
};

TEST(Function, GradientsOfAllOrders) {
  const auto fn = [](const TensorList& in) { return Square::apply(in[0]); };
  EXPECT_TRUE(gradcheck(fn, {input({3, 2})}));
  EXPECT_TRUE(gradgradcheck(fn, {input({3, 2})}));
  EXPECT_EQ(Square::apply(leaf({3})).grad_fn()->name(), "Square");
  EXPECT_FALSE(Square::apply(leaf({3}).detach()).requires_grad());
}

// Several inputs of several kinds, a context of its own, a saved result, two results of which one has no gradient.
struct ScaledSum : Function<ScaledSum> {
  struct Ctx : FunctionCtx {
    double scale = 0;
    size_t count = 0;
  };
  static std::tuple<Tensor, Tensor> forward(Ctx& ctx, const TensorList& xs, double scale, const Tensor& w) {
    ctx.scale = scale;
    ctx.count = xs.size();
    Tensor y = xs[0];
    for (size_t i = 1; i < xs.size(); ++i) y = y + xs[i];
    const Tensor z = y * w * scale;
    const Tensor mask = y + 100.0;
    ctx.save_for_backward({y, w, z});
    ctx.mark_non_differentiable(mask);
    return {z, mask};
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    const TensorList saved = ctx.saved_tensors();
    EXPECT_TRUE(saved[2].requires_grad());  // a result comes back with its history
    TensorList grads(ctx.count, gy[0] * saved[1] * ctx.scale);
    grads.push_back(ctx.needs_input_grad(ctx.count) ? gy[0] * saved[0] * ctx.scale : Tensor());
    return grads;
  }
};

TEST(Function, ListsOtherArgumentsAndSeveralResults) {
  const auto fn = [](const TensorList& in) {
    return std::get<0>(ScaledSum::apply(TensorList{in[0], in[1]}, 0.5, in[2]));
  };
  EXPECT_TRUE(gradcheck(fn, {input({4}), input({4}, 2), input({4}, 3)}));
  const auto [z, mask] = ScaledSum::apply(TensorList{input({4})}, 2.0, input({4}).detach());
  EXPECT_TRUE(z.requires_grad());
  EXPECT_FALSE(mask.requires_grad());
}

struct TwoResults : Function<TwoResults> {
  static TensorList forward(Ctx& ctx, const Tensor& x, bool materialize) {
    ctx.set_materialize_grads(materialize);
    ctx.save_for_backward({full({}, materialize ? 1.0 : 0.0)});
    return {x * 2.0, x * 3.0};
  }
  static std::vector<Tensor> backward(Ctx& ctx, const TensorList& gy) {
    const bool materialize = ctx.saved_tensors()[0].item() == 1;
    EXPECT_EQ(gy[1].defined(), materialize);
    return {materialize ? gy[0] * 2.0 + gy[1] * 3.0 : gy[0] * 2.0};
  }
};

TEST(Function, MissingGradientsOfResults) {
  for (bool materialize : {true, false}) {
    Tensor x = leaf({1});
    TwoResults::apply(x, materialize)[0].backward();
    EXPECT_EQ(first(x.grad()), 2);
  }
}

struct Identity : Function<Identity> {
  static Tensor forward(Ctx&, const Tensor& x) { return x; }
  static Tensor backward(Ctx&, const TensorList& gy) { return gy[0] * -1.0; }
};

TEST(Function, ReturningAnInputLeavesItsHistoryAlone) {
  Tensor x = leaf({1});
  const Tensor y = x * 2.0, z = Identity::apply(y);
  EXPECT_EQ(y.grad_fn()->name(), "mul_scalar");
  EXPECT_FALSE(z.same_as(y));
  z.backward();
  EXPECT_EQ(first(x.grad()), -2);
  EXPECT_TRUE(x.is_leaf());
}

// What goes wrong is chosen by an argument.
struct Careless : Function<Careless> {
  struct Ctx : FunctionCtx {
    int how = 0;
  };
  static Tensor forward(Ctx& ctx, const Tensor& a, const Tensor& b, int how) {
    ctx.how = how;
    if (how == 3) Tensor(a.detach()).add_(1.0);
    return a + b;
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    if (ctx.how == 0) return {gy[0]};
    if (ctx.how == 1) return {gy[0], sum(gy[0])};
    if (ctx.how == 2) return {to(gy[0], DType::f32), Tensor()};
    return {gy[0], gy[0] * std::numeric_limits<double>::quiet_NaN()};
  }
};

TEST(Function, WrongGradientsAreClearErrors) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  EXPECT_EQ(
      message([&] { sum(Careless::apply(a, b, 0)).backward(); }),
      "Careless: backward returned 1 gradients for 2 tensor inputs; return an undefined tensor for an input without "
      "a gradient");
  EXPECT_EQ(message([&] { sum(Careless::apply(a, b, 1)).backward(); }),
            "Careless: backward returned [] f64 as the gradient of input 1, which is [2] f64");
  a.set_grad({});
  sum(Careless::apply(a, b, 2)).backward();  // another precision is converted, an undefined gradient is none
  EXPECT_EQ(a.grad().dtype(), DType::f64);
  EXPECT_FALSE(b.grad().defined());
  EXPECT_NE(message([&] { Careless::apply(a, b, 3); }).find("Careless: forward wrote in place to input 0"),
            std::string::npos);
}

TEST(Function, SavedTensorsAreReleasedAndGuarded) {
  Tensor x = leaf({3});
  const Tensor y = Square::apply(x);
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(first(x.grad()), 12);
  EXPECT_NE(message([&] { y.backward(); }).find("Square: its saved tensors were already released"), std::string::npos);
  Tensor h = x * 1.0;
  const Tensor z = Square::apply(h);
  h.detach().add_(1.0);
  EXPECT_NE(message([&] { z.backward(); }).find("Square: a tensor needed for its gradient"), std::string::npos);
}

// ---- anomaly mode ----

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Anomaly, NamesTheForwardOp) {
  const Tensor zero = zeros({3}, DType::f64);
  const Tensor bad = zero * kInf;  // not watched
  AnomalyScope watch;
  EXPECT_EQ(message([&] { ((zero + 1.0) * kInf) * zero; }), "mul: result 0 ([3] f64) of the forward op holds a NaN");
  Tensor y = zeros({3}, DType::f64);
  EXPECT_EQ(message([&] { y.mul_(full({}, kInf, DType::f64)); }).substr(0, 13), "mul: result 0");
  EXPECT_EQ(message([&] { bad + 1.0; }).substr(0, 11), "add_scalar:");
}

// y = 0 * x whose rule computes inf * 0 with an op.
struct BadRule : Function<BadRule> {
  static Tensor forward(Ctx&, const Tensor& x) { return x * 0.0; }
  static Tensor backward(Ctx&, const TensorList& gy) { return gy[0] * kInf * 0.0; }
};
// The same without an op in between.
struct BadRuleByHand : Function<BadRuleByHand> {
  static Tensor forward(Ctx&, const Tensor& x) { return x * 0.0; }
  static Tensor backward(Ctx&, const TensorList& gy) {
    Tensor g = clone(gy[0]);
    *g.data<double>() = std::numeric_limits<double>::quiet_NaN();
    return g;
  }
};

TEST(Anomaly, NamesTheForwardOpBehindANaNOfBackward) {
  Tensor x = leaf({1});
  BadRule::apply(x).backward();  // not watched
  EXPECT_TRUE(std::isnan(first(x.grad())));
  AnomalyScope watch;
  EXPECT_EQ(message([&] { (BadRule::apply(x * 2.0) + 1.0).backward(); }),
            "BadRule: its backward made a NaN: result 0 ([1] f64) of mul_scalar");
  EXPECT_EQ(message([&] { BadRuleByHand::apply(x).backward(); }),
            "BadRuleByHand: its backward made a NaN in the gradient of input 0 ([1] f64)");
  Tensor clean = leaf({2});
  (clean * clean).backward();
  EXPECT_EQ(first(clean.grad()), 4);
}

TEST(Anomaly, EndsWithItsScope) {
  {
    AnomalyScope outer;
    AnomalyScope inner;
  }
  EXPECT_EQ(t_mode.unusual, 0u);
  EXPECT_TRUE(std::isnan(first(zeros({1}, DType::f64) * kInf)));
}

struct GivesAnotherKind : Function<GivesAnotherKind> {
  static Tensor forward(Ctx&, const Tensor& x) { return x * 1.0; }
  static TensorList backward(Ctx&, const TensorList& gy) { return {change(gy[0])}; }
  static inline Tensor (*change)(const Tensor&) = nullptr;
};

TEST(Function, ConvertsAGradientOfAnotherDtypeAndRefusesAnotherDevice) {
  Tensor x = ones({2}).set_requires_grad();
  GivesAnotherKind::change = [](const Tensor& g) { return (g * 3.0).to(DType::i64); };
  sum(GivesAnotherKind::apply(x)).backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>({3, 3}));
  GivesAnotherKind::change = [](const Tensor& g) { return g.to(Device::meta()); };
  try {
    sum(GivesAnotherKind::apply(x)).backward();
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_STREQ(e.what(),
                 "GivesAnotherKind: backward returned [2] f32 on meta as the gradient of input 0, which is on cpu");
  }
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>({3, 3}));
}

}  // namespace
}  // namespace strata
