// Streamed: networks of any kind compute the same bits with their parameters elsewhere, and little of them is near.
#include "strata/nn/streamed.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/memory/second_heap_test_util.h"
#include "strata/nn/container.h"
#include "strata/nn/conv.h"
#include "strata/nn/layers.h"
#include "strata/nn/norm.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {
using memory::kSecond;
using memory::SecondHeap;
using Bits = std::vector<uint8_t>;

Bits bits(const Tensor& given) {
  if (!given.defined()) return {};
  const Tensor t = given.detach().contiguous();
  const Pin pin(t, Access::read);
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

// A network, and a loss of an input.
struct Case {
  Module net;
  std::function<Tensor(const Tensor&)> loss;
  Tensor input;
};

// Loss, gradients and parameters of `steps` steps of plain descent, the last in evaluation.
std::vector<Bits> train(const Case& c, Streamed* streamed, int steps = 3) {
  std::vector<Bits> all;
  manual_seed(11);
  for (int i = 0; i < steps; ++i) {
    {
      std::optional<StreamScope> scope;
      if (streamed) scope.emplace(*streamed);
      const Tensor loss = c.loss(c.input);
      loss.backward();
      all.push_back(bits(loss));
    }
    const NoGrad guard;
    for (auto& [name, p] : c.net.named_parameters()) {
      all.push_back(bits(p.grad()));
      if (p.grad().defined()) Tensor(p).sub_(p.grad() * 0.05);
      Tensor(p).set_grad({});
    }
  }
  const NoGrad guard;
  std::optional<StreamScope> scope;
  if (streamed) scope.emplace(*streamed);
  all.push_back(bits(c.loss(c.input)));
  for (auto& [name, p] : c.net.named_parameters()) all.push_back(bits(p));
  for (auto& [name, b] : c.net.named_buffers()) all.push_back(bits(b));
  return all;
}

// The same network resident and streamed; returns the streamed one's parts and notes.
template <class Make>
std::string expect_same(Make&& make, StreamOptions options = {}) {
  SecondHeap& heap = SecondHeap::get();
  const int64_t live = heap.stats(Device::cpu()).live_total;
  std::string report;
  {
    manual_seed(3);
    const Case resident = make();
    const std::vector<Bits> wanted = train(resident, nullptr);
    manual_seed(3);
    const Case c = make();
    options.tier = kSecond;
    Streamed streamed(c.net, options);
    EXPECT_EQ(train(c, &streamed), wanted);
    EXPECT_EQ(heap.pinned.load(), 0);
    EXPECT_EQ(heap.wrong_reads.load(), 0);
    report = streamed.report();
    for (const auto& part : streamed.parts()) EXPECT_LE(part.bytes, streamed.near_bytes());
  }
  EXPECT_EQ(heap.stats(Device::cpu()).live_total, live);
  return report;
}

struct Stack : Module {
  explicit Stack(int layers, int64_t dim = 24) : Module("Stack") {
    for (int i = 0; i < layers; ++i) list.push_back(Linear(dim, dim));
  }
  Tensor forward(const Tensor& x) const {
    Tensor h = x;
    for (const Linear& l : list) h = h + gelu(l(h));
    return h;
  }
  ModuleList<Linear> list = register_module("list", ModuleList<Linear>());
};
Case stack(int layers, int64_t rows = 5) {
  const Stack net(layers);
  return {net, [net](const Tensor& x) { return sum(net.forward(x) * x); }, randn({rows, 24})};
}

TEST(Streamed, AStackOfLayers) {
  for (const bool recompute : {true, false}) {
    const std::string report = expect_same([] { return stack(6); }, {.recompute = recompute});
    EXPECT_NE(report.find("list.0: 2400 bytes\n"), std::string::npos) << report;
    EXPECT_NE(report.find("list.5: 2400 bytes\n"), std::string::npos) << report;
    EXPECT_NE(report.find(" 0 of them unforeseen"), std::string::npos) << report;
  }
  expect_same([] { return stack(6); }, {.near_bytes = 2400});
  expect_same([] { return stack(6); }, {.parts_near = 6});
  expect_same([] { return stack(4, 300); }, {.inputs = kSecond});
}

// The way there and back by hand: handles, versions and gradients stay.
TEST(Streamed, ParametersMoveThereAndBack) {
  SecondHeap& heap = SecondHeap::get();
  const int64_t live = heap.stats(Device::cpu()).live_total;
  const Case c = stack(3);
  c.loss(c.input).backward();
  const Tensor handle = c.net.parameters()[0];
  const Bits weight = bits(handle), grad = bits(handle.grad());
  const uint32_t version = handle.version();
  move_parameters(c.net, kSecond);
  for (const Tensor& t : c.net.parameters()) {
    EXPECT_TRUE(t.tier() == kSecond && t.grad().tier() == kSecond);
    EXPECT_EQ(t.storage()->tag, memory::Tag::parameter);
  }
  EXPECT_EQ(bits(handle), weight);
  EXPECT_EQ(handle.version(), version);
  move_parameters(c.net, Tier());
  for (const Tensor& t : c.net.parameters()) EXPECT_TRUE(t.tier() == Tier::host && t.grad().tier() == Tier::host);
  EXPECT_EQ(bits(handle), weight);
  EXPECT_EQ(bits(handle.grad()), grad);
  EXPECT_EQ(heap.stats(Device::cpu()).live_total, live);
  EXPECT_THROW(move_parameters(c.net, Tier::named("nowhere")), DeviceError);
}

// What is near at most, of a step after the first, and how the bytes came.
struct Peak {
  int64_t near, late;
  int64_t fetches;
};
Peak peak_of(int layers, bool first, bool gradients = true) {
  SecondHeap& heap = SecondHeap::get();
  const Case c = stack(layers);
  Streamed streamed(c.net, {.tier = kSecond});
  StreamStats before;
  int64_t fetches = 0;
  const GradMode mode(gradients);
  for (int step = 0; step < (first ? 1 : 2); ++step) {
    for (Tensor p : c.net.parameters()) p.set_grad({});
    before = streamed.stats();
    fetches = heap.fetches;
    heap.near_peak = heap.near.load();
    const StreamScope scope(streamed);
    const Tensor loss = c.loss(c.input);
    if (gradients) loss.backward();
  }
  return {heap.near_peak.load(), streamed.stats().bytes_late - before.bytes_late, heap.fetches - fetches};
}

TEST(Streamed, HorizonLmPeakDoesNotDependOnTheNumberOfLayers) {
  const Peak four = peak_of(4, false), eight = peak_of(8, false), sixteen = peak_of(16, false);
  EXPECT_EQ(four.near, 2 * 2400 + 2304);  // two parts, and a gradient on its way
  EXPECT_EQ(eight.near, four.near);
  EXPECT_EQ(sixteen.near, four.near);
  EXPECT_EQ(sixteen.late, 0);                    // everything was asked for ahead
  EXPECT_EQ(peak_of(16, true).late, 16 * 2400);  // in the first step forward waits, backward is known
  // Forward, backward with what it runs again, and gradients: a pin for each weight and bias of each.
  EXPECT_LE(eight.fetches, 8 * 2 * 4);
}

TEST(Streamed, SuperpipelineInferenceAtHalfThePeak) {
  const Case c = stack(4);
  const NoGrad guard;
  const Bits wanted = bits(c.loss(c.input));
  int64_t resident = 0;
  for (const Tensor& p : c.net.parameters()) resident += p.nbytes();
  Streamed streamed(c.net, {.tier = kSecond});
  SecondHeap& heap = SecondHeap::get();
  for (int i = 0; i < 3; ++i) {
    heap.near_peak = heap.near.load();
    const StreamScope scope(streamed);
    EXPECT_EQ(bits(c.loss(c.input)), wanted);
    EXPECT_LE(heap.near_peak.load(), resident / 2);
  }
  EXPECT_EQ(streamed.stats().bytes_late, resident);  // the first time
  EXPECT_EQ(streamed.stats().bytes_ahead, 2 * resident);
}

TEST(Streamed, PatrickStarMovesLessThanStaticOffload) {
  const Case c = stack(8);
  int64_t bytes = 0;
  for (const Tensor& p : c.net.parameters()) bytes += p.nbytes();
  // Half of the parameters fit: what forward comes to last is still near when backward begins with it.
  Streamed streamed(c.net, {.tier = kSecond, .near_bytes = bytes / 2});
  SecondHeap& heap = SecondHeap::get();
  for (int step = 0; step < 3; ++step) {
    for (Tensor p : c.net.parameters()) p.set_grad({});
    const StreamStats before = streamed.stats();
    heap.near_peak = heap.near.load();
    {
      const StreamScope scope(streamed);
      c.loss(c.input).backward();
    }
    const StreamStats s = streamed.stats();
    const int64_t came = s.bytes_ahead + s.bytes_late - before.bytes_ahead - before.bytes_late;
    EXPECT_LE(heap.near_peak.load(), bytes / 2 + 2304);
    if (step > 0) {
      EXPECT_EQ(came, bytes + bytes / 2);  // layer by layer: twice all of them
    }
  }
}

TEST(Streamed, RecomputationKeepsWhatComesIntoParts) {
  const Case c = stack(8, 4000);
  const auto activations = [&](const StreamOptions& options) {
    Streamed streamed(c.net, options);
    const int64_t before = memory::stats(Device::cpu()).live_total;
    memory::reset_peak(Device::cpu());
    const StreamScope scope(streamed);
    c.loss(c.input).backward();
    return (memory::stats(Device::cpu()).peak_total - before) / (4000 * 24 * 4);
  };
  const int64_t kept = activations({.tier = kSecond, .recompute = false});
  const int64_t again = activations({.tier = kSecond});
  const int64_t away = activations({.tier = kSecond, .inputs = kSecond});
  EXPECT_GE(kept, 8 * 2);
  EXPECT_LE(again, kept - 6);
  EXPECT_LE(away, again - 5);
}

TEST(Streamed, AConvolutionalNetwork) {
  struct Net : Module {
    Conv2d conv = register_module("conv", Conv2d(1, 4, 3, {.padding = {1}}));
    BatchNorm2d norm = register_module("norm", BatchNorm2d(4));
    Dropout dropout = register_module("dropout", Dropout(0.3));
    Linear out = register_module("out", Linear(4 * 36, 10));
    Tensor forward(const Tensor& x) { return out(dropout(relu(norm(conv(x)))).flatten(1)); }
  };
  expect_same([] {
    Net net;
    return Case{net, [net](const Tensor& x) mutable { return sum(exp(net.forward(x) * 0.1)); }, randn({3, 1, 6, 6})};
  });
}

TEST(Streamed, BranchesLoopsAndSharedModules) {
  struct Net : Module {
    Linear left = register_module("left", Linear(6, 6)), right = register_module("right", Linear(6, 6));
    Sequential deep = register_module("deep", Sequential(Linear(6, 12), Tanh(), Linear(12, 6)));
    Linear twice = register_module("twice", Linear(6, 6));
    Linear never = register_module("never", Linear(2, 3));
    Tensor forward(const Tensor& x) const {
      Tensor h = cat(TensorList{left(x), right(tanh(x))}, 0);
      h = twice(deep(twice(h)));
      return h;
    }
  };
  const std::string report = expect_same([] {
    Net net;
    return Case{net, [net](const Tensor& x) { return sum(net.forward(x) * 0.5); }, randn({4, 6})};
  });
  EXPECT_NE(report.find("twice: 168 bytes; its turn comes 2 times in a forward"), std::string::npos) << report;
  EXPECT_NE(report.find("deep.0: 336 bytes\n"), std::string::npos) << report;
  EXPECT_NE(report.find("never: 36 bytes\n"), std::string::npos) << report;
}

TEST(Streamed, ALoopThatDependsOnData) {
  struct Net : Module {
    Linear step = register_module("step", Linear(5, 5)), stop = register_module("stop", Linear(5, 1));
    Linear last = register_module("last", Linear(5, 5));
    mutable int calls = 0;
    Tensor forward(const Tensor& x) const {
      Tensor h = x;
      const int rounds = 1 + ++calls % 3;
      for (int i = 0; i < rounds; ++i) {
        h = tanh(step(h));
        if (sum(stop(h)).item() > 1e6) break;
      }
      return last(h);
    }
  };
  const std::string report = expect_same(
      [] {
        const auto net = std::make_shared<Net>();
        return Case{*net, [net](const Tensor& x) { return sum(net->forward(x) * x); }, randn({4, 5})};
      },
      {.near_bytes = 130});
  EXPECT_NE(report.find("came out of turn"), std::string::npos) << report;
}

TEST(Streamed, SharedBytesStayAndAreNamed) {
  struct Net : Module {
    Tensor a, b, c;
    Net() {
      memory::TagScope tag(memory::Tag::parameter);
      const Tensor all = randn({2, 8});
      a = register_parameter("a", all.select(0, 0).detach());
      b = register_parameter("b", all.select(0, 1).detach());
      c = register_parameter("c", randn({8}));
    }
  };
  const std::string report = expect_same([] {
    Net net;
    return Case{net, [net](const Tensor& x) { return sum(x * net.a * net.b * net.c); }, randn({8})};
  });
  EXPECT_NE(report.find("a: 0 bytes; shares its bytes with 'b': stays where it is"), std::string::npos) << report;
  EXPECT_NE(report.find("c: 32 bytes\n"), std::string::npos) << report;
}

TEST(Streamed, AutocastsCopiesComeInTheirPlace) {
  const auto make = [] {
    const Stack net(5);
    return Case{net,
                [net](const Tensor& x) {
                  const AutocastScope low(DType::bf16);
                  return sum(net.forward(x) * x);
                },
                randn({5, 24})};
  };
  expect_same(make);
  expect_same(make, {.recompute = false});
  // While nobody writes the parameters, half of the weights' bytes come.
  SecondHeap& heap = SecondHeap::get();
  const Case c = make();
  Streamed streamed(c.net, {.tier = kSecond});
  for (int i = 0; i < 3; ++i) {
    const StreamStats before = streamed.stats();
    heap.near_peak = heap.near.load();
    const int64_t live = memory::stats(Device::cpu()).live[static_cast<int>(memory::Tag::parameter)];
    {
      const StreamScope scope(streamed);
      c.loss(c.input).backward();
    }
    EXPECT_EQ(memory::stats(Device::cpu()).live[static_cast<int>(memory::Tag::parameter)], live);
    const StreamStats s = streamed.stats();
    const int64_t came = s.bytes_ahead + s.bytes_late - before.bytes_ahead - before.bytes_late;
    if (i == 0) continue;
    const int64_t low = 24 * 25 * 2, gradients = 24 * 25 * 4;
    EXPECT_LE(came, 5 * (2 * low + gradients));
  }
  for (const Tensor& p : c.net.parameters()) {
    const Tensor& low = autograd_meta(p).low.tensor;
    EXPECT_TRUE(!low.defined() || low.tier() == kSecond);
  }
}

// A table of which rows are read, tied to the head, in autocast: its place is its own, and its copy comes for the head.
TEST(Streamed, TablesAreReadInPlace) {
  struct Net : Module {
    Embedding table = register_module("table", Embedding(50, 24));
    Stack stack = register_module("stack", Stack(3));
    Tensor forward(const Tensor& rows) const { return linear(stack.forward(table(rows)), table.weight); }
  };
  const auto make = [] {
    const Net net;
    return Case{net,
                [net](const Tensor& rows) {
                  const AutocastScope low(DType::bf16);
                  const Tensor y = net.forward(rows);
                  return sum(y * y);
                },
                from_span<int64_t>(std::vector<int64_t>{3, 49, 0, 3, 17}, {5})};
  };
  const StreamOptions options{.tier = kSecond, .recompute = false, .in_place = {"table.weight"}};
  const std::string report = expect_same(make, options);
  EXPECT_NE(report.find("table: 0 bytes;"), std::string::npos) << report;
  // Of the table the copy alone comes, while nobody writes to it.
  const Case c = make();
  Streamed streamed(c.net, options);
  EXPECT_EQ(streamed.near_bytes(), 2 * 2400);
  for (int i = 0; i < 4; ++i) {
    for (Tensor p : c.net.parameters()) p.set_grad({});
    const StreamStats before = streamed.stats();
    {
      const StreamScope scope(streamed);
      c.loss(c.input).backward();
    }
    const StreamStats s = streamed.stats();
    if (i < 2) continue;  // the second step brings as the first one read, which made the copies
    const int64_t came = s.bytes_ahead + s.bytes_late - before.bytes_ahead - before.bytes_late;
    const int64_t table = 50 * 24 * 2, layers = 3 * 24 * 25 * 2, gradient = 50 * 24 * 4;
    EXPECT_LE(came, 2 * table + 2 * layers + gradient);
    EXPECT_EQ(s.bytes_late, before.bytes_late);
  }
  for (const auto& [name, p] : c.net.named_parameters()) {
    EXPECT_EQ(p.tier(), name == "table.weight" ? Tier::host : kSecond) << name;
    EXPECT_EQ(autograd_meta(p).low.tensor.defined() && autograd_meta(p).low.tensor.tier() == kSecond, true) << name;
  }
}

// What is left out stays where it is, is no part, and is read there.
TEST(Streamed, WhatIsLeftOutStays) {
  const auto make = [] { return stack(3); };
  const std::string report = expect_same(make, {.tier = kSecond, .recompute = false, .leave_out = {"list.1.weight"}});
  EXPECT_NE(report.find("list.1: "), std::string::npos) << report;
  const Case c = make();
  const Streamed streamed(c.net, {.tier = kSecond, .leave_out = {"list.0.weight", "list.0.bias"}});
  for (const auto& [name, p] : c.net.named_parameters())
    EXPECT_EQ(p.tier(), name.starts_with("list.0.") ? Tier::host : kSecond) << name;
  EXPECT_EQ(streamed.parts().size(), 2U);
}

// Of a part that does not fit beside the one whose turn it is, the weights that do come; the others are asked for as its
// turn begins, before any is read.
TEST(Streamed, PartsComeByTheirWeights) {
  struct Net : Module {
    Sequential a = register_module("a", Sequential(Linear(24, 24), Linear(24, 24)));
    ModuleList<Stack> list = register_module("list", ModuleList<Stack>());
    Net() {
      list.push_back(Stack(1));
      list.push_back(Stack(2));
    }
    Tensor forward(const Tensor& x) const { return list[1].forward(list[0].forward(x)); }
  };
  SecondHeap::get();
  const Net net;
  const Tensor x = randn({5, 24});
  const NoGrad guard;
  const Bits wanted = bits(net.forward(x));
  // Beside list.0 (2400 bytes) there is room for one of the two layers of list.1.
  Streamed streamed(net, {.tier = kSecond, .near_bytes = 4800, .parts_near = 1});
  for (int i = 0; i < 3; ++i) {
    const StreamScope scope(streamed);
    const StreamStats before = streamed.stats();
    EXPECT_EQ(bits(net.forward(x)), wanted);
    if (i > 0) {
      EXPECT_EQ(streamed.stats().bytes_late, before.bytes_late);
      EXPECT_EQ(streamed.stats().bytes_ahead - before.bytes_ahead, 2400);  // of three layers two find room
    }
  }
}

TEST(Streamed, SeveralPassesInAScope) {
  const Case c = stack(4);
  Streamed streamed(c.net, {.tier = kSecond});
  std::vector<Bits> first;
  for (int i = 0; i < 3; ++i) {
    for (Tensor p : c.net.parameters()) p.set_grad({});
    const int64_t late = streamed.stats().bytes_late;
    std::vector<Bits> grads;
    {
      const StreamScope scope(streamed);
      for (int pass = 0; pass < 3; ++pass) c.loss(c.input).backward();
    }
    for (const Tensor& p : c.net.parameters()) grads.push_back(bits(p.grad()));
    if (i == 0) first = grads;
    EXPECT_EQ(grads, first);
    EXPECT_EQ(streamed.stats().bytes_late > late, i == 0);
  }
  EXPECT_EQ(streamed.stats().unforeseen, 0);
  for (const StreamedPart& p : streamed.parts()) EXPECT_EQ(p.note, "its turn comes 3 times in a forward");
}

TEST(Streamed, GradientsGoHomeAndAddUp) {
  const Case c = stack(3);
  Streamed streamed(c.net, {.tier = kSecond});
  std::vector<Bits> twice;
  for (int i = 0; i < 2; ++i) {
    const StreamScope scope(streamed);
    c.loss(c.input).backward();
    for (const Tensor& p : c.net.parameters()) {
      EXPECT_EQ(p.grad().tier(), kSecond);
      EXPECT_EQ(p.grad().storage()->tag, memory::Tag::gradient);
      EXPECT_EQ(p.storage()->tag, memory::Tag::parameter);
    }
  }
  for (const Tensor& p : c.net.parameters()) twice.push_back(bits(p.grad()));
  for (Tensor p : c.net.parameters()) p.set_grad({});
  EXPECT_EQ(streamed.stats().unforeseen, 0);
  c.loss(c.input).backward();  // outside of a scope, whose hooks stay
  c.loss(c.input).backward();
  size_t i = 0;
  for (const Tensor& p : c.net.parameters()) {
    EXPECT_EQ(bits(p.grad()), twice[i++]);
    EXPECT_EQ(p.grad().tier(), kSecond);
  }
}

TEST(Streamed, GradientsStayWhereThatIsWanted) {
  const Case c = stack(2);
  Streamed streamed(c.net, {.tier = kSecond, .gradients = false});
  const StreamScope scope(streamed);
  c.loss(c.input).backward();
  for (const Tensor& p : c.net.parameters()) EXPECT_EQ(p.grad().tier(), Tier::host);
}

TEST(Streamed, ANetworkThatChanges) {
  Case c = stack(3);
  Streamed streamed(c.net, {.tier = kSecond});
  const auto run = [&] {
    const StreamScope scope(streamed);
    return bits(c.loss(c.input));
  };
  const Bits wide = run();
  const StateDict saved = c.net.state_dict();
  for (const auto& [name, t] : saved) EXPECT_EQ(t.tier(), kSecond);
  c.net.requires_grad(false);
  EXPECT_EQ(run(), wide);
  c.net.requires_grad(true);
  c.net.to(DType::f64);  // other bytes, in the device's own memory
  c.input = c.input.to(DType::f64);
  EXPECT_NE(run(), wide);
  for (const Tensor& p : c.net.parameters()) EXPECT_EQ(p.tier(), kSecond);
}

TEST(Streamed, WhatCannotBeIsSaid) {
  const Case c = stack(3);
  const auto refusal = [&](StreamOptions o, Tier tier = kSecond) {
    o.tier = tier;
    return message([&] { Streamed streamed(c.net, o); });
  };
  EXPECT_EQ(refusal({.near_bytes = 2399}),
            "Streamed: 'list.0' has 2400 bytes of parameters, which are wanted at once; near_bytes is 2399");
  EXPECT_NE(refusal({.near_bytes = -1}).find("not negative"), std::string::npos);
  EXPECT_NE(refusal({.parts_near = 0}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal({.leave_out = {"list.7.weight"}}).find("leave_out names no parameter: 'list.7.weight'"),
            std::string::npos);
  EXPECT_NE(refusal({.in_place = {"list.7.weight"}}).find("in_place names no parameter: 'list.7.weight'"),
            std::string::npos);
  EXPECT_NE(refusal({.in_place = {"list.0.weight"}, .in_place_tier = kSecond}).find("is to be read in place"),
            std::string::npos);
  EXPECT_NE(refusal({}, Tier::host).find("does not move"), std::string::npos);
  EXPECT_NE(refusal({}, Tier::named("nowhere")).find("'nowhere'"), std::string::npos);
  for (const Tensor& p : c.net.parameters()) EXPECT_EQ(p.tier(), Tier::host);
  Streamed streamed(c.net, {.tier = kSecond});
  const StreamScope scope(streamed);
  EXPECT_NE(message([&] { const StreamScope again(streamed); }).find("already"), std::string::npos);
}

TEST(Streamed, AFetchThatFails) {
  SecondHeap& heap = SecondHeap::get();
  const Case c = stack(4);
  Streamed streamed(c.net, {.tier = kSecond});
  const auto step = [&] {
    for (Tensor p : c.net.parameters()) p.set_grad({});
    const StreamScope scope(streamed);
    const Tensor loss = c.loss(c.input);
    loss.backward();
    return bits(loss);
  };
  const Bits wanted = step();
  heap.fails = true;
  EXPECT_THROW(step(), MemoryError);
  heap.fails = false;
  EXPECT_EQ(heap.pinned.load(), 0);
  EXPECT_EQ(step(), wanted);
  {
    const StreamScope scope(streamed);
    const Tensor loss = c.loss(c.input);
    heap.fails = true;
    EXPECT_THROW(loss.backward(), MemoryError);
    heap.fails = false;
  }
  EXPECT_EQ(heap.pinned.load(), 0);
  EXPECT_EQ(step(), wanted);
  EXPECT_EQ(heap.wrong_reads.load(), 0);
}

}  // namespace
}  // namespace strata::nn
