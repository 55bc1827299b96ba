// Recompute: the same values and gradients, fewer saved tensors, whatever the calls are.
#include "strata/autograd/recompute.h"

#include <gtest/gtest.h>

#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/function.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/rng.h"
#include "strata/core/samples.h"
#include "strata/memory/allocator.h"
#include "strata/memory/second_heap_test_util.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor leaf(const Shape& shape, uint64_t seed = 1, DType dtype = DType::f32) {
  return Samples(dtype, seed).tensor(shape).set_requires_grad();
}
std::vector<uint8_t> bytes(const Tensor& given) {
  const Tensor t = given.detach().contiguous();
  const Pin pin(t, Access::read);
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

// Counts the calls of a thread by phase.
struct Counter final : CallObserver {
  void before(const Call& call) override {
    if (!call.composed && !call.op.is_view()) ++(current_phase() == Phase::forward ? forward : backward);
  }
  int forward = 0, backward = 0;
  ObserverScope scope{*this};
};

// f(x, cut) -> a loss; `cut` is called where a stretch begins. With and without stretches the loss and all gradients
// are the same bits.
template <class F>
void expect_same(const TensorList& leaves, F&& f, const RecomputeOptions& options = {}) {
  const auto run = [&](Recompute* recompute) {
    manual_seed(5);
    for (Tensor t : leaves) t.set_grad({});
    const Tensor loss = f([&] {
      if (recompute) recompute->begin();
    });
    loss.backward();
    std::vector<std::vector<uint8_t>> all{bytes(loss)};
    for (const Tensor& t : leaves) all.push_back(bytes(t.grad()));
    return all;
  };
  const auto plain = run(nullptr);
  Recompute recompute(options);
  EXPECT_EQ(run(&recompute), plain);
  EXPECT_EQ(run(&recompute), plain);  // what the first left behind does no harm
}

TEST(Recompute, SameBitsAsWithout) {
  const Tensor x = leaf({5, 7}), w = leaf({7, 7}, 2), b = leaf({7}, 3);
  expect_same({x, w, b}, [&](auto cut) {
    Tensor h = x;
    for (int i = 0; i < 3; ++i) {
      cut();
      h = h + gelu(linear(h, w, b)) * tanh(h);
    }
    cut();
    return sum(h * h);
  });
}

TEST(Recompute, ViewsListsAndRandomNumbers) {
  const Tensor x = leaf({6, 8}), w = leaf({8}, 2);
  expect_same({x, w}, [&](auto cut) {
    cut();
    const Tensor a = dropout(exp(x), 0.5, true), b = narrow(a, 1, 2, 4) * narrow(a, 1, 0, 4);
    cut();
    const Tensor c = cat(TensorList{b, transpose(transpose(b, 0, 1), 0, 1), b * b}, 1);
    const Tensor d = dropout(sigmoid(c), 0.3, true);
    return sum(d * select(d, 0, 1)) + sum(layer_norm(x, {8}, w, {}));
  });
}

TEST(Recompute, WritesInPlace) {
  const Tensor x = leaf({4, 3});
  Tensor seen = zeros({4, 3});
  expect_same({x}, [&](auto cut) {
    seen.fill_(0);
    cut();
    Tensor h = sin(x);
    h.mul_(2.0);  // what a call of the stretch made
    const Tensor y = h * h;
    {
      NoGrad guard;
      seen.add_(y);  // of outside: once, not twice
    }
    const Tensor z = y * (seen.detach() + 1.0);  // and read after it was written
    EXPECT_EQ(bytes(seen), bytes(y));
    return sum(z * y);
  });
  Recompute recompute;
  recompute.begin();
  Tensor a = sin(x), y = a * a;
  a.add_(1.0);
  EXPECT_THROW(sum(y).backward(), AutogradError);  // as without: the product needs what `a` was
  Tensor outer = x.detach() * 1.0;
  recompute.begin();
  const Tensor z = exp(x * outer);
  outer.add_(1.0);
  EXPECT_NE(message([&] { sum(z).backward(); }).find("overwritten"), std::string::npos);
}

TEST(Recompute, KeepsOnlyWhatComesIn) {
  const int64_t n = 1 << 16;
  const Tensor x = full({n}, 0.5, DType::f32).set_requires_grad();
  const auto held = [&](bool cuts) {
    Recompute recompute;
    const int64_t before = memory::stats(Device::cpu()).live_total;
    Tensor h = x;
    for (int i = 0; i < 4; ++i) {
      if (cuts) recompute.begin();
      h = exp(sin(tanh(h)));
    }
    if (cuts) recompute.keep();
    const int64_t after = memory::stats(Device::cpu()).live_total;
    sum(h).backward();
    return (after - before) / (n * 4);
  };
  EXPECT_EQ(held(false), 8);
  EXPECT_EQ(held(true), 4);  // x is there; three inputs and the last result
}

TEST(Recompute, RunsOnlyTheCallsThatAreNeeded) {
  const Tensor x = leaf({16});
  Counter plain;
  { sum(exp(sin(x))).backward(); }
  const int without = plain.backward;
  Tensor(x).set_grad({});
  Counter counter;
  Recompute recompute;
  recompute.begin();
  const Tensor unused = cos(x) * 3.0, y = exp(sin(x)) + 1.0;
  EXPECT_EQ(counter.forward, 5);
  sum(y).backward();
  EXPECT_EQ(counter.backward - without, 2);  // sin and exp, not the others
}

TEST(Recompute, InputsGoToATierAndComeBack) {
  memory::SecondHeap& heap = memory::SecondHeap::get();
  const Tensor x = leaf({64, 33}), w = leaf({33, 33}, 2);
  const int64_t live = heap.stats(Device::cpu()).live_total, fetches = heap.fetches;
  const auto model = [&](auto cut) {
    Tensor h = x;
    for (int i = 0; i < 5; ++i) {
      cut();
      h = tanh(matmul(h, w)) * h;
    }
    cut();
    return sum(h * h);
  };
  expect_same({x, w}, model, {.inputs = memory::kSecond, .least_bytes = 1});
  EXPECT_GT(heap.fetches, fetches);
  EXPECT_EQ(heap.stats(Device::cpu()).live_total, live);
  EXPECT_EQ(heap.pinned.load(), 0);
  Recompute recompute({.inputs = memory::kSecond, .least_bytes = 1});
  Tensor loss = model([&] { recompute.begin(); });
  EXPECT_EQ(heap.stats(Device::cpu()).live_total - live, 4 * 64 * 33 * 4);  // x has its own place
  heap.fails = true;
  EXPECT_THROW(loss.backward(), MemoryError);
  heap.fails = false;
  loss = Tensor();
  EXPECT_EQ(heap.stats(Device::cpu()).live_total, live);
}

TEST(Recompute, RetainedGraphsGradAndSecondDerivatives) {
  const Tensor x = leaf({5}, 1, DType::f64);
  const auto f = [&] { return sum(exp(x) * sin(x) * x); };
  const Tensor plain = f();
  const Tensor g = grad({plain}, {x}, {}, true)[0], gg = grad({sum(g * g)}, {x})[0];
  Recompute recompute;
  recompute.begin();
  const Tensor y = f();
  EXPECT_EQ(bytes(grad({y}, {x}, {}, false, true)[0]), bytes(g));
  EXPECT_EQ(bytes(grad({y}, {x}, {}, false, true)[0]), bytes(g));
  const Tensor h = grad({y}, {x}, {}, true)[0];
  EXPECT_EQ(bytes(h), bytes(g));
  EXPECT_EQ(bytes(grad({sum(h * h)}, {x})[0]), bytes(gg));
}

TEST(Recompute, AutocastCheckpointAndStatistics) {
  const Tensor x = leaf({8, 6}), w = leaf({6, 6}, 2), gain = leaf({6}, 3), shift = leaf({6}, 4);
  expect_same({x, w, gain, shift}, [&](auto cut) {
    const AutocastScope low(DType::bf16);
    Tensor mean = zeros({6}), var = ones({6});
    cut();
    Tensor h = linear(x, w);
    h = batch_norm(h, mean, var, gain, shift, true);
    cut();
    h = checkpoint([&](const Tensor& t) { return gelu(linear(t, w)) * t; }, h);
    cut();
    return sum(h.to(DType::f32) * h) + sum(mean.detach());
  });
}

TEST(Recompute, OutlivesItsScopeAndServesOtherThreads) {
  const Tensor x = leaf({9}), w = leaf({9}, 2);
  const Tensor plain = grad({sum(exp(x * w) * w)}, {x})[0];
  Tensor y;
  {
    Recompute recompute;
    recompute.begin();
    y = sum(exp(x * w) * w);
  }
  std::vector<std::vector<uint8_t>> got(4);
  std::vector<std::thread> threads;
  for (auto& g : got) threads.emplace_back([&] { g = bytes(grad({y}, {x}, {}, false, true)[0]); });
  for (std::thread& t : threads) t.join();
  for (const auto& g : got) EXPECT_EQ(g, bytes(plain));
  y = {};
}

// Saves what it gets itself, outside of calls.
struct Twice final : Function<Twice> {
  static Tensor forward(FunctionCtx& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static TensorList backward(FunctionCtx& ctx, const TensorList& gy) { return {gy[0] * ctx.saved_tensors()[0] * 2.0}; }
};

TEST(Recompute, FunctionsThatSaveThemselves) {
  const Tensor x = leaf({7});
  const auto f = [&](auto cut) {
    cut();
    const Tensor y = Twice::apply(exp(x)), g = grad({sum(y)}, {x}, {}, false, true)[0];  // in the middle of a stretch
    return sum(Twice::apply(y) * g);
  };
  expect_same({x}, f);
}

TEST(Recompute, CallsThatThrow) {
  const Tensor x = leaf({3, 4});
  Recompute recompute;
  recompute.begin();
  EXPECT_THROW(matmul(x, x), ShapeError);
  const Tensor y = sum(exp(x));
  EXPECT_THROW(exp(x) + ones({7}), ShapeError);
  y.backward();
  const Tensor z = sum(tanh(x));  // the stretch went on after backward
  z.backward();
  EXPECT_EQ(bytes(x.grad()), bytes(exp(x.detach()) + grad({sum(tanh(x))}, {x})[0]));
}

}  // namespace
}  // namespace strata
