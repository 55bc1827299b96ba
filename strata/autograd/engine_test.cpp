// The backward pass: accumulation, grad(), retained gradients, writes through views, threads.
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/error_test_util.h"
#include "strata/core/op_base.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor vec(std::vector<double> v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())});
}
Tensor leaf(std::vector<double> v) {
  return vec(std::move(v)).set_requires_grad();
}
std::vector<double> list(const Tensor& t) {
  const Tensor c = contiguous(t.detach());
  return {c.data<double>(), c.data<double>() + c.numel()};
}
using Doubles = std::vector<double>;

TEST(Engine, DiamondsRunEachNodeOnce) {
  Tensor x = leaf({2, 3});
  const Tensor a = x * x;
  const Tensor b = a * 3.0, c = a * a;
  const Tensor d = b * c;  // 3 x^6
  sum(d + a).backward();
  EXPECT_EQ(list(x.grad()), Doubles({18 * 32 + 4, 18 * 243 + 6}));
}

TEST(Engine, LadderOfDiamondsIsNotExponential) {
  Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = (y + y) * 0.5;  // 2^60 paths
  y.backward();
  EXPECT_EQ(list(x.grad()), Doubles({1}));
}

TEST(Engine, LeavesAccumulateAndNonLeavesDoNot) {
  Tensor x = leaf({1, 2});
  const Tensor y = x * 2.0;
  for (int i = 0; i < 3; ++i) sum(y).backward({}, true);
  EXPECT_EQ(list(x.grad()), Doubles({6, 6}));
  EXPECT_FALSE(y.grad().defined());
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_leaf());
}

TEST(Engine, TheGradientGivenIsNotTakenOver) {
  Tensor x = leaf({1, 2});
  const Tensor g = vec({5, 7});
  x.backward(g);
  x.backward(g);
  EXPECT_EQ(list(x.grad()), Doubles({10, 14}));
  EXPECT_EQ(list(g), Doubles({5, 7}));
}

TEST(Engine, TwoLeavesDoNotShareOneGradient) {
  Tensor x = leaf({1}), y = leaf({2});
  const Tensor s = x + y;
  s.backward({}, true);
  s.backward();
  EXPECT_EQ(list(x.grad()), Doubles({2}));
  EXPECT_EQ(list(y.grad()), Doubles({2}));
  x.grad().zero_();
  EXPECT_EQ(list(y.grad()), Doubles({2}));
}

TEST(Engine, RetainGrad) {
  Tensor x = leaf({3});
  const Tensor y = x * x, z = y * 2.0;
  y.retain_grad();
  z.backward();
  EXPECT_EQ(list(y.grad()), Doubles({2}));
  EXPECT_EQ(list(x.grad()), Doubles({12}));
  EXPECT_FALSE(z.grad().defined());
  EXPECT_THROW(vec({1}).retain_grad(), AutogradError);
}

TEST(Engine, GradOfSeveralOutputsAndInputs) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4}), unused = leaf({5});
  const Tensor y = x * w, z = y * y;
  const TensorList g = grad({y, sum(z)}, {x, w, y}, {vec({10, 100}), Tensor()}, false, true);
  EXPECT_EQ(list(g[0]), Doubles({10 * 3 + 2 * 3 * 3, 100 * 4 + 2 * 8 * 4}));
  EXPECT_EQ(list(g[1]), Doubles({10 * 1 + 2 * 3 * 1, 100 * 2 + 2 * 8 * 2}));
  EXPECT_EQ(list(g[2]), Doubles({10 + 6, 100 + 16}));
  EXPECT_FALSE(x.grad().defined());  // nothing is accumulated
  EXPECT_NE(message<AutogradError>([&] {
              grad({sum(y)}, {x, unused}, {}, false, true);
            }).find("input 1"),
            std::string::npos);
  const TensorList some = grad({sum(y)}, {unused, x}, {}, false, false, true);
  EXPECT_FALSE(some[0].defined());
  EXPECT_EQ(list(some[1]), Doubles({3, 4}));
}

TEST(Engine, GradLeavesUnneededPartsAlone) {
  Tensor x = leaf({2}), w = leaf({3});
  const Tensor h = w * w;  // not on the way to x
  const Tensor y = x * h;
  grad({y}, {x});
  EXPECT_FALSE(w.grad().defined());
  h.backward();  // was not released
  EXPECT_EQ(list(w.grad()), Doubles({6}));
}

TEST(Engine, GradComputesNothingForWhatIsNotAskedFor) {
  struct Counter final : CallObserver {
    std::map<std::string_view, int> calls;
    void before(const Call& call) override { ++calls[call.op.name()]; }
  };
  const Tensor x = Tensor(ones({4, 3})).set_requires_grad(), w = Tensor(ones({5, 3})).set_requires_grad(),
               b = Tensor(ones({5})).set_requires_grad();
  const Tensor y = linear(x, w, b);
  const auto calls_of = [&](const TensorList& inputs, bool create_graph) {
    Counter counter;
    const ObserverScope scope(counter);
    const TensorList g = grad({y}, inputs, {ones({4, 5})}, create_graph, true);
    EXPECT_EQ(g.size(), inputs.size());
    for (const Tensor& each : g) EXPECT_TRUE(each.defined());
    return counter.calls["matmul"];
  };
  for (const bool create_graph : {false, true}) {
    EXPECT_EQ(calls_of({x}, create_graph), 1);
    EXPECT_EQ(calls_of({w}, create_graph), 1);
    EXPECT_EQ(calls_of({b}, create_graph), 0);
    EXPECT_EQ(calls_of({x, w}, create_graph), 2);
  }
  // A pass inside of one (a rule that differentiates) is its own.
  const Tensor nested = checkpoint([&](const Tensor& in) { return tanh(linear(in, w, b)); }, x);
  const Tensor gx = grad({sum(nested)}, {x}, {}, false, true)[0];
  EXPECT_TRUE(equal(gx, grad({sum(tanh(linear(x, w, b)))}, {x})[0]));
}

TEST(Engine, CreateGraphGivesHigherDerivatives) {
  Tensor x = leaf({2});
  Tensor d = x * x * x * x;
  const double want[] = {32, 48, 48, 24};
  for (double w : want) {
    d = grad({d}, {x}, {}, true)[0];
    EXPECT_EQ(list(d), Doubles({w}));
  }
  EXPECT_FALSE(grad({d * x}, {x})[0].requires_grad());
}

TEST(Engine, GradientPenaltyAccumulatesIntoParameters) {
  Tensor x = leaf({2}), w = leaf({3});
  const Tensor y = x * x * w;
  const Tensor g = grad({y}, {x}, {}, true)[0];  // 2 x w
  (g * g).backward();                            // 4 x^2 w^2
  EXPECT_EQ(list(w.grad()), Doubles({8 * 4 * 3}));
  EXPECT_EQ(list(x.grad()), Doubles({8 * 2 * 9}));
}

TEST(Engine, Errors) {
  Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  EXPECT_NE(message<AutogradError>([&] { y.backward(); }).find("one element"), std::string::npos);
  EXPECT_THROW(y.backward(vec({1})), ShapeError);
  EXPECT_THROW(vec({1}).backward(), AutogradError);
  EXPECT_THROW(grad({sum(y)}, {vec({1})}), AutogradError);
  EXPECT_THROW(backward({y, y}, {vec({1, 1})}), ValueError);
  const Tensor s = sum(y);
  s.backward();
  EXPECT_NE(message<AutogradError>([&] { s.backward(); }).find("retain_graph"), std::string::npos);
  EXPECT_THROW(x.set_grad(vec({1})), ShapeError);
  EXPECT_THROW(full({2}, 1, DType::i32).set_requires_grad(), DTypeError);
}

TEST(Engine, NoGradAndDetachRecordNothing) {
  Tensor x = leaf({2});
  {
    NoGrad guard;
    EXPECT_FALSE((x * x).requires_grad());
    GradMode on(true);
    EXPECT_TRUE((x * x).requires_grad());
  }
  const Tensor y = x * (x * x).detach();
  y.backward();
  EXPECT_EQ(list(x.grad()), Doubles({4}));
}

TEST(Engine, NothingIsRecordedDuringBackward) {
  Tensor x = leaf({2});
  (x * x).backward();
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST(Engine, ExpandedGradientsAreNotKeptAsViews) {
  Tensor x = full({3, 4}, 1.0, DType::f64).set_requires_grad();
  sum(x).backward();
  EXPECT_TRUE(x.grad().is_contiguous());
  sum(x).backward();
  EXPECT_EQ(x.grad().data<double>()[11], 2);
}

TEST(Engine, IndependentModelsOnSeveralThreads) {
  std::vector<std::thread> team;
  team.reserve(8);
  std::vector<double> results(8);
  for (int t = 0; t < 8; ++t) {
    team.emplace_back([&results, t] {
      Tensor w = leaf({0.5, static_cast<double>(t)});
      for (int i = 0; i < 200; ++i) {
        Tensor y = w;
        for (int k = 0; k < 5; ++k) y = y * 1.5 + w;
        w.set_grad({});
        sum(y).backward();
      }
      results[static_cast<size_t>(t)] = w.grad().data<double>()[0];
    });
  }
  for (std::thread& t : team) t.join();
  for (double r : results) EXPECT_DOUBLE_EQ(r, 1 + 1.5 * (1 + 1.5 * (1 + 1.5 * (1 + 1.5 * (1 + 1.5)))));
}

// ---- writes in place and through views ----

TEST(InPlace, WriteThroughAViewOfANonLeaf) {
  Tensor x = leaf({1, 2, 3}), v = leaf({10});
  Tensor y = x * 1.0;
  y.slice(0, 1, 2).copy_(v);
  sum(y * y).backward();
  EXPECT_EQ(list(x.grad()), Doubles({2, 0, 6}));
  EXPECT_EQ(list(v.grad()), Doubles({20}));
}

TEST(InPlace, WriteThroughAViewGivesAPlainBaseItsHistory) {
  Tensor v = leaf({10, 20});
  Tensor y = zeros({4}, DType::f64);
  Tensor part = y.slice(0, 1, 3);
  EXPECT_FALSE(y.requires_grad());
  part.copy_(v);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(part.requires_grad());
  sum(y * y).backward();
  EXPECT_EQ(list(v.grad()), Doubles({20, 40}));
}

TEST(InPlace, WriteThroughAViewOfAView) {
  Tensor x = full({2, 3}, 2.0, DType::f64).set_requires_grad(), v = leaf({5});
  Tensor y = x * 1.0;
  Tensor row = y.select(0, 1);
  row.slice(0, 2, 3).mul_(full({}, 2.5, DType::f64)).add_(v);
  sum(y * y).backward();
  EXPECT_EQ(list(x.grad()), Doubles({4, 4, 4, 4, 4, 50}));
  EXPECT_EQ(list(v.grad()), Doubles({20}));
  EXPECT_EQ(list(row), Doubles({2, 2, 10}));
}

TEST(InPlace, RepeatedWritesToTheSamePlaceKeepTheLast) {
  Tensor a = leaf({3}), b = leaf({4});
  Tensor y = zeros({2}, DType::f64);
  y.slice(0, 0, 1).copy_(a);
  y.slice(0, 0, 1).copy_(b);
  sum(y * y).backward();
  EXPECT_EQ(list(b.grad()), Doubles({8}));
  EXPECT_EQ(list(a.grad()), Doubles({0}));
}

TEST(InPlace, ReadingAViewAfterItsBaseWasWritten) {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * 1.0;
  const Tensor view = y.slice(0, 0, 2);
  y.mul_(full({}, 3.0, DType::f64));
  sum(view * view).backward();
  EXPECT_EQ(list(x.grad()), Doubles({18, 36, 0}));
}

TEST(InPlace, SecondDerivativeThroughAWrite) {
  Tensor x = leaf({2, 3});
  Tensor y = x * x;
  y.slice(0, 0, 1).mul_(full({}, 5.0, DType::f64));       // 5 x^2, x^2
  const Tensor g = grad({sum(y * y)}, {x}, {}, true)[0];  // 100 x^3, 4 x^3
  EXPECT_EQ(list(g), Doubles({800, 108}));
  EXPECT_EQ(list(grad({sum(g)}, {x})[0]), Doubles({1200, 108}));
}

TEST(InPlace, VersionsCountWritesOfAllViews) {
  Tensor x = zeros({4}, DType::f64);
  const uint32_t before = x.version();
  Tensor view = x.slice(0, 0, 2), twin = x.detach();
  view.fill_(1);
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(twin.version(), before + 1);
  twin.add_(1);
  EXPECT_EQ(view.version(), before + 2);
  EXPECT_EQ(clone(x).version(), 0u);
}

TEST(InPlace, OverwrittenThroughADetachedTwinIsCaught) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2.0;
  const Tensor z = sum(y * y);
  y.detach().zero_();
  const std::string text = message<AutogradError>([&] { z.backward(); });
  EXPECT_NE(text.find("mul: "), std::string::npos) << text;
  EXPECT_NE(text.find("overwritten by fill"), std::string::npos) << text;
}

TEST(InPlace, OverwritingWhatNobodyReadsIsAllowed) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2.0;
  const Tensor z = sum(y + y);  // add reads nothing of y
  y.detach().zero_();
  z.backward();
  EXPECT_EQ(list(x.grad()), Doubles({4, 4}));
}

TEST(InPlace, ViewsOfLeavesAreRefused) {
  Tensor x = leaf({1, 2});
  const std::string text = message<AutogradError>([&] { x.slice(0, 0, 1).mul_(full({}, 2.0, DType::f64)); });
  EXPECT_NE(text.find("view of a leaf"), std::string::npos) << text;
  EXPECT_EQ(list(x), Doubles({1, 2}));
  NoGrad guard;
  x.slice(0, 0, 1).add_(1);
  EXPECT_EQ(list(x), Doubles({2, 2}));
}

TEST(InPlace, AResultThatDoesNotFitIsRefused) {
  Tensor x = zeros({2}, DType::f32);
  EXPECT_THROW(x.add_(zeros({3, 2})), ShapeError);
  Tensor i = zeros({2}, DType::i32);
  EXPECT_THROW(i.mul_(full({}, 1.5)), DTypeError);
  EXPECT_EQ(x.version(), 0u);
}

}  // namespace
}  // namespace strata
