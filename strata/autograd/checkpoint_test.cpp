// checkpoint(): the same values and gradients, fewer saved tensors.
#include "strata/autograd/checkpoint.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"
#include "strata/core/recording.h"
#include "strata/core/samples.h"
#include "strata/core/row_share.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

using Doubles = std::vector<double>;
Tensor input(const Shape& shape, uint64_t seed = 1, DType dtype = DType::f64) {
  return Samples(dtype, seed).tensor(shape).set_requires_grad();
}
Doubles list(const Tensor& t) {
  const Tensor c = contiguous(to(t.detach(), DType::f64));
  return {c.data<double>(), c.data<double>() + c.numel()};
}

TEST(Checkpoint, SameGradientsAsWithout) {
  Tensor x = input({4}), w = input({4}, 2);
  int runs = 0;
  const auto block = [&](const Tensor& h) {
    ++runs;
    return h * w * h;  // w is captured
  };
  const Tensor plain = sum(block(x) * x);
  const TensorList want = grad({plain}, {x, w});
  runs = 0;
  const Tensor y = checkpoint(block, x);
  EXPECT_EQ(runs, 1);
  sum(y * x).backward();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(list(x.grad()), list(want[0]));
  EXPECT_EQ(list(w.grad()), list(want[1]));
}

TEST(Checkpoint, ParametersAloneMayWantGradients) {
  Tensor w = input({4});
  const Tensor x = input({4}, 2).detach();
  const Tensor y = checkpoint([&](const Tensor& h) { return h * w * w; }, x);
  const Tensor g = grad({sum(y)}, {w})[0];
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(g.data<double>()[i], 2 * x.data<double>()[i] * w.data<double>()[i]);
}

TEST(Checkpoint, KeepsOnlyTheInputs) {
  const int64_t n = 1 << 16;
  Tensor x = full({n}, 0.5, DType::f32).set_requires_grad();
  const auto chain = [](const Tensor& h) {
    Tensor y = h;
    for (int i = 0; i < 10; ++i) y = y * y + 0.25;
    return y;
  };
  const auto live = [] { return memory::stats(DeviceType::cpu).live_total; };
  const int64_t before = live();
  const Tensor a = chain(x);
  const int64_t plain = live() - before;
  const Tensor b = checkpoint(chain, x);
  const int64_t kept = live() - before - plain;
  EXPECT_GE(plain, 10 * n * 4);
  EXPECT_LT(kept, 2 * n * 4);
  b.backward(ones({n}));
  EXPECT_LT(live() - before - plain, 4 * n * 4);  // what was recomputed is gone: the result and the gradient remain
}

TEST(Checkpoint, EqualRandomNumbersAndAnUntouchedGenerator) {
  manual_seed(5);
  Tensor x = ones({1000}, DType::f64).set_requires_grad();
  const Tensor skipped = dropout(x.detach(), 0.5);
  const Tensor y = checkpoint([](const Tensor& h) { return dropout(h * h, 0.5); }, x);
  dropout(x.detach(), 0.5);
  const RngKey state = default_generator().state();
  sum(y).backward();
  EXPECT_EQ(default_generator().state(), state);
  const Doubles values = list(y), grads = list(x.grad());
  int zeros = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(grads[i], 2 * values[i]);  // y = mask x^2 with x = 1: the same mask in both
    zeros += values[i] == 0;
  }
  EXPECT_GT(zeros, 400);
  EXPECT_LT(zeros, 600);
}

// Backward may run behind the scope that said whose rows they are.
TEST(Checkpoint, NumbersOfAPartOfTheRows) {
  Tensor x = ones({4, 100}, DType::f64).set_requires_grad();
  Tensor y;
  {
    const RowShareScope rows({.first = 4, .own = 4, .all = 8});
    y = checkpoint([](const Tensor& h) { return dropout(h * h, 0.5); }, x);
  }
  sum(y).backward();
  const Doubles values = list(y), grads = list(x.grad());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(grads[i], 2 * values[i]);
}

// The mask is drawn in the recomputation: what dropout's result is multiplied with depends on it.
TEST(Checkpoint, RandomNumbersOfTheRecomputationReachOtherGradients) {
  manual_seed(6);
  Tensor x = ones({200}, DType::f64).set_requires_grad(), w = ones({200}, DType::f64).set_requires_grad();
  const Tensor y = checkpoint([&](const Tensor& h) { return dropout(h, 0.5) * w; }, x);
  dropout(x.detach(), 0.5);
  sum(y).backward();
  EXPECT_EQ(list(w.grad()), list(y));  // d(y)/d(w) is the dropped-out x
}

// A Recording sees every call of the second run as work, with what it makes: plans stand on it.
TEST(Checkpoint, IsRecordedWhole) {
  const auto step = [](bool again) {
    const Tensor x = input({16}), w = input({16}, 2);
    const auto block = [&](const Tensor& h) { return exp(tanh(sin(h * w))); };
    return record([&] { sum(again ? checkpoint(block, x) : block(x)).backward(); });
  };
  const auto of = [](const Recording& r, std::string_view name, Phase phase) {
    int n = 0;
    for (size_t i = 0; i < r.calls.size(); ++i)
      n += r.is_work(i) && r.calls[i].phase == phase && r.calls[i].op->name() == name && !r.calls[i].results.empty();
    return n;
  };
  const Recording kept = step(false), again = step(true);
  for (const char* op : {"mul", "sin", "tanh", "exp"}) {
    EXPECT_EQ(of(again, op, Phase::forward), 1) << op;
    EXPECT_EQ(of(again, op, Phase::backward), of(kept, op, Phase::backward) + 1) << op;
  }
  // Nothing is taken for a tensor that was there before.
  const auto given = [](const Recording& r) {
    int n = 0;
    for (const RecordedStorage& s : r.storages) n += s.born < 0;
    return n;
  };
  EXPECT_EQ(given(again), given(kept));
}

TEST(Checkpoint, RetainGraphAndSecondBackward) {
  Tensor x = input({3});
  int runs = 0;
  const auto fn = [&](const Tensor& h) {
    ++runs;
    return h * h * h;
  };
  const Tensor y = sum(checkpoint(fn, x));
  y.backward({}, true);
  const Doubles once = list(x.grad());
  y.backward();
  const Doubles twice = list(x.grad());
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
  EXPECT_EQ(runs, 3);
  EXPECT_THROW(y.backward(), AutogradError);
}

TEST(Checkpoint, HigherDerivatives) {
  Tensor w = input({2, 3}, 3);
  const auto fn = [&](const TensorList& in) {
    return checkpoint([](const Tensor& a, double k, const Tensor& b) { return a * a * b * k * a; }, in[0], 0.5, in[1]);
  };
  EXPECT_TRUE(gradcheck(fn, {input({2, 3}), w}));
  EXPECT_TRUE(gradgradcheck(fn, {input({2, 3}), w}));
}

TEST(Checkpoint, NestedOnesDropTheInnerInputsToo) {
  const int64_t n = 1 << 16;
  Tensor x = full({n}, 0.5, DType::f32).set_requires_grad();
  const auto inner = [](const Tensor& h) { return h * h * h; };
  const auto outer = [&](const Tensor& h) {
    Tensor y = h;
    for (int i = 0; i < 6; ++i) y = checkpoint(inner, y) + 0.1;
    return y;
  };
  const Tensor want = grad({outer(x)}, {x}, {ones({n})})[0];
  const int64_t before = memory::stats(DeviceType::cpu).live_total;
  const Tensor y = checkpoint(outer, x);
  EXPECT_LT(memory::stats(DeviceType::cpu).live_total - before, 2 * n * 4);
  y.backward(ones({n}));
  EXPECT_EQ(list(x.grad()), list(want));
}

TEST(Checkpoint, BackwardInsideTheFunction) {
  Tensor x = input({3});
  const auto penalty = [](const Tensor& h) {
    const Tensor g = grad({sum(h * h * h)}, {h}, {}, true)[0];
    return g * g;  // 9 x^4
  };
  sum(checkpoint(penalty, x)).backward();
  for (int i = 0; i < 3; ++i) {
    const double v = x.data<double>()[i];
    EXPECT_NEAR(x.grad().data<double>()[i], 36 * v * v * v, 1e-12);
  }
}

TEST(Checkpoint, AutocastIsReplayed) {
  Tensor x = input({4, 8}, 1, DType::f32), w = input({8, 8}, 2, DType::f32);
  const auto block = [&](const Tensor& h) { return matmul(matmul(h, w), w); };
  const auto run = [&](bool save) {
    Tensor y;
    {
      AutocastScope low(DType::bf16);
      y = save ? checkpoint(block, x) : block(x);
    }
    EXPECT_EQ(y.dtype(), DType::bf16);
    return grad({sum(y)}, {x, w});  // autocast is off by now
  };
  const TensorList plain = run(false), saved = run(true);
  EXPECT_EQ(saved[0].dtype(), DType::f32);
  EXPECT_EQ(list(plain[0]), list(saved[0]));
  EXPECT_EQ(list(plain[1]), list(saved[1]));
  EXPECT_FALSE(autocast_enabled());
}

TEST(Checkpoint, WithoutGradientsItOnlyCalls) {
  Tensor x = input({3});
  NoGrad guard;
  EXPECT_FALSE(checkpoint([](const Tensor& h) { return h * h; }, x).requires_grad());
}

TEST(Checkpoint, AFunctionThatChangesIsAnError) {
  Tensor x = input({3});
  bool again = false;
  const Tensor y = checkpoint(
      [&](const Tensor& h) {
        const Tensor r = again ? h + 1.0 : h * h;
        again = true;
        return r;
      },
      x);
  try {
    sum(y).backward();
    FAIL() << "no error";
  } catch (const AutogradError& e) {
    EXPECT_NE(std::string(e.what()).find("checkpoint: the function saved 2 tensors in the forward pass and 0"),
              std::string::npos)
        << e.what();
  }
}

TEST(Checkpoint, OverwrittenInputsAndParametersAreErrors) {
  Tensor x = input({3}), w = input({3}, 2);
  Tensor h = x * 1.0;
  const auto fn = [&](const Tensor& a) { return a * w; };
  const Tensor y = sum(checkpoint(fn, h)), z = sum(checkpoint(fn, x));
  h.detach().zero_();
  EXPECT_THROW(y.backward(), AutogradError);
  w.detach().zero_();
  EXPECT_THROW(z.backward(), AutogradError);
}

// Languages turn exceptions into their own, which programs may catch: the second run then goes on past its end.
TEST(Checkpoint, AFunctionThatCatchesEverythingGoesOn) {
  Tensor x = input({3});
  int runs = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& h) {
        ++runs;
        Tensor r = h;
        for (int i = 0; i < 3; ++i) {
          try {
            r = r * h;
          } catch (...) {
          }
        }
        return r;
      },
      x);
  sum(y).backward();
  const std::vector<float> got = x.grad().to_vector<float>(), values = x.to_vector<float>();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], 4 * std::pow(values[i], 3), 1e-4);
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace strata
