// What graphed() decides, with a stand-in for a card's graphs: a capture notes the calls of a step and takes back what
// they did, a replay makes them again at the same places.

#include "strata/optim/graphed.h"

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "strata/core/op_base.h"
#include "strata/core/recording.h"
#include "strata/strata.h"

namespace strata {
namespace {

using detail::GraphedCall;
using detail::GraphedResult;

std::vector<float> values(const Tensor& t) {
  return t.detach().to_vector<float>();
}

struct FakeGraphs final : detail::GraphedBackend {
  struct Noted {
    const OpBase* op;
    Form form;
    std::vector<Value> args;
    TensorList results;
  };
  struct Tape final : CallObserver {
    void before(const Call& call) override {
      if (depth++ > 0) return;
      const detail::ThreadModeScope plain({false, 0});
      calls.push_back({&call.op, call.form, call.args(), {}});
      for (Value& v : calls.back().args) {
        if (auto* t = std::get_if<Tensor>(&v)) see(*t);
        if (auto* list = std::get_if<TensorList>(&v))
          for (Tensor& t : *list) see(t);
      }
    }
    void after(const Call&, std::span<const Tensor> results) override {
      if (--depth > 0) return;
      for (const Tensor& t : results) calls.back().results.push_back(t.defined() ? t.detach() : t);
    }
    void failed(const Call&) override { --depth; }
    // The place alone is kept, as a card's graph does.
    void see(Tensor& t) {
      if (t.defined()) t = t.detach();
      if (t.defined() && !first.contains(t.storage().get())) {
        const Tensor all = alias(t, {static_cast<int64_t>(t.storage()->nbytes) / size_of(t.dtype())}, {1}, 0);
        first.emplace(t.storage().get(), std::pair(all, all.clone()));
      }
    }
    int depth = 0;
    std::vector<Noted> calls;
    std::map<const Storage*, std::pair<Tensor, Tensor>> first;  // as they were when they were first seen
  };
  struct Work final : detail::GraphedWork {
    explicit Work(int& n) : alive(n) { ++alive; }
    ~Work() override { --alive; }
    void replay() override {
      const detail::ThreadModeScope plain({false, 0});
      for (const Noted& c : calls) {
        if (c.form != Form::fresh) {
          c.op->inplace_boxed(c.args);
          continue;
        }
        const std::vector<Value> now = c.op->call_boxed(c.args);
        for (size_t i = 0; i < now.size() && i < c.results.size(); ++i)
          if (const auto* t = std::get_if<Tensor>(&now[i]); t && !(t->storage() == c.results[i].storage()))
            copy_elements(c.results[i], *t);
      }
    }
    int& alive;
    std::vector<Noted> calls;
  };

  explicit FakeGraphs(int& n) : alive(n) {}
  bool captures(Device device) const override { return device.is_cpu(); }
  bool capturing() const override { return inside; }
  void begin(Device) override {}
  std::unique_ptr<detail::GraphedWork> capture(Device, const GraphedCall& call, const TensorList& inputs,
                                               GraphedResult& result) override {
    auto work = std::make_unique<Work>(alive);
    Tape tape;
    struct Restore {
      FakeGraphs& backend;
      Tape& tape;
      ~Restore() {
        backend.inside = false;
        for (auto& [place, t] : tape.first) copy_elements(t.first, t.second);
      }
    } const restore{*this, tape};
    inside = true;
    const ObserverScope scope(tape);
    result = call(inputs);
    work->calls = std::move(tape.calls);
    return work;
  }
  bool inside = false;
  int& alive;
};

// A step over the stand-in.
struct Steps {
  template <class F>
  Tensor operator()(F&& fn, const TensorList& tensors, std::string_view rest = {}) {
    auto step = [&](const TensorList& in) {
      ++runs;
      return GraphedResult{{fn(in)}, {}};
    };
    return steps.call(tensors, rest, GraphedCall(step)).tensors.at(0);
  }
  explicit Steps(const GraphedOptions& options = {}) : steps(options, std::make_unique<FakeGraphs>(alive)) {}
  int alive = 0, runs = 0;
  detail::GraphedSteps steps;
};

TEST(Graphed, WarmsUpCapturesAndReplays) {
  Steps steps;
  const auto twice = [](const TensorList& in) { return in[0] * 2; };
  Tensor first;
  for (int i = 0; i < 5; ++i) {
    const Tensor y = steps(twice, {full({3}, i)});
    EXPECT_EQ(values(y), std::vector<float>(3, static_cast<float>(2 * i))) << i;
    if (i == 2) first = y;
  }
  EXPECT_EQ(values(first), std::vector<float>(3, 4.f));  // later calls leave it alone
  EXPECT_EQ(steps.runs, 2);
  EXPECT_EQ(steps.steps.captures(), 1);
  EXPECT_EQ(steps.steps.replays(), 3);
  steps.steps.clear();
  EXPECT_EQ(steps.alive, 0);
  EXPECT_EQ(steps.steps.graphs(), 0);
  EXPECT_EQ(values(steps(twice, {full({3}, 7)})), std::vector<float>(3, 14.f));
  EXPECT_EQ(steps.runs, 3);

  Steps slow({.warmup = 3});
  for (int i = 0; i < 5; ++i) slow(twice, {ones({2})});
  EXPECT_EQ(slow.runs, 4);
  EXPECT_THROW(Steps({.warmup = 0}), ValueError);
  EXPECT_THROW(Steps({.most = 0}), ValueError);
}

TEST(Graphed, OtherKindsOfArgumentsHaveGraphsOfTheirOwnAndTheOldestGoes) {
  Steps steps({.most = 2});
  const auto sum = [](const TensorList& in) { return in[0].sum(); };
  const TensorList kinds{ones({2, 3}), ones({3, 2}), ones({2, 3}, DType::f64), ones({3, 2}).t(), zeros({0})};
  for (const Tensor& x : kinds)
    for (int i = 0; i < 3; ++i) EXPECT_EQ(steps(sum, {x}).item(), static_cast<double>(x.numel()));
  EXPECT_EQ(steps.steps.captures(), 5);
  EXPECT_EQ(steps.steps.graphs(), 2);
  EXPECT_EQ(steps.alive, 2);
  EXPECT_EQ(steps.runs, 10);
  steps(sum, {kinds[4]}), steps(sum, {kinds[3]});  // are there
  EXPECT_EQ(steps.runs, 10);
  steps(sum, {kinds[0]});  // was dropped: captured anew, in the place of kinds[4]
  EXPECT_EQ(steps.runs, 11);
  steps(sum, {kinds[3]});
  EXPECT_EQ(steps.runs, 11);
  steps(sum, {kinds[4]});
  EXPECT_EQ(steps.runs, 12);
  // Plain values, modes and the default device count, too.
  steps(sum, {kinds[4]}, "other");
  EXPECT_EQ(steps.runs, 13);
  {
    NoGrad guard;
    steps(sum, {kinds[4]});
  }
  EXPECT_EQ(steps.runs, 14);
  steps(sum, {kinds[4], Tensor()});
  EXPECT_EQ(steps.runs, 15);
}

TEST(Graphed, ArgumentsKeepTheirStrides) {
  Steps steps;
  const Tensor wide = arange(0, 24, 1, DType::f32).reshape({4, 6});
  for (const Tensor& x : {wide.t(), wide.slice(1, 0, 6, 2), wide.slice(1, 1, 4), wide.select(0, 2).expand({5, 6}),
                          wide.narrow(1, 2, 1), randn({2, 3, 4}).permute({2, 0, 1})}) {
    Strides seen;
    for (int i = 0; i < 3; ++i) {
      Tensor(wide).add_(1);
      const Tensor y = steps([&](const TensorList& in) { return seen = in[0].strides(), in[0] * 3; }, {x});
      EXPECT_EQ(values(y), values(x * 3));
    }
    if (x.size(1) > 1) {
      EXPECT_EQ(seen, x.strides());
    }
  }
}

// Two layers; `zero` says when gradients go.
struct Net {
  enum Zero { first, last, filled };
  explicit Net(Zero z) : zero(z) {
    manual_seed(11);
    a = randn({4, 8}).set_requires_grad();
    b = randn({8, 1}).set_requires_grad();
    optimizer.emplace(TensorList{a, b}, optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
  }
  Tensor step(const TensorList& in) {
    if (zero != last) optimizer->zero_grad(zero == first);
    const Tensor e = matmul(matmul(in[0], a).tanh(), b) - in[1], loss = (e * e).mean();
    loss.backward();
    optimizer->step();
    if (zero == last) optimizer->zero_grad();
    return loss;
  }
  Zero zero;
  Tensor a, b;
  std::optional<optim::SGD> optimizer;
};

TEST(Graphed, ATrainingStepHasTheBitsOfEager) {
  for (const Net::Zero zero : {Net::first, Net::last, Net::filled}) {
    Net eager(zero), net(zero);
    Steps steps;
    for (int i = 0; i < 12; ++i) {
      manual_seed(static_cast<uint64_t>(i));
      const int64_t n = i % 2 ? 5 : 3;  // two shapes in turns
      const TensorList in{randn({n, 4}), randn({n, 1})};
      const Tensor want = eager.step(in), got = steps([&](const TensorList&t) { return net.step(t); }, in);
      EXPECT_EQ(values(got), values(want)) << i;
      EXPECT_FALSE(got.requires_grad());
      EXPECT_EQ(values(net.a), values(eager.a)) << i;
      EXPECT_EQ(values(net.b), values(eager.b)) << i;
      ASSERT_EQ(net.a.grad().defined(), eager.a.grad().defined()) << i;
      if (net.a.grad().defined()) {
        EXPECT_EQ(values(net.a.grad()), values(eager.a.grad())) << i;
      }
    }
    EXPECT_EQ(steps.runs, 4) << zero;
    EXPECT_EQ(steps.steps.replays(), 8) << zero;
  }
}

// Forward and backward in the graph, gradients summed over calls, the update outside.
TEST(Graphed, GradientsThatStayBetweenCallsAreThoseOfEager) {
  Net eager(Net::last), net(Net::last);
  Steps steps;
  const auto passes = [](Net& n, const TensorList& in) {
    const Tensor e = matmul(matmul(in[0], n.a).tanh(), n.b) - in[1], loss = (e * e).mean();
    loss.backward();
    return loss;
  };
  for (int i = 0; i < 12; ++i) {
    manual_seed(static_cast<uint64_t>(i));
    const TensorList in{randn({3, 4}), randn({3, 1})};
    const Tensor want = passes(eager, in), got = steps([&](const TensorList&t) { return passes(net, t); }, in);
    EXPECT_EQ(values(got), values(want)) << i;
    EXPECT_EQ(values(net.a.grad()), values(eager.a.grad())) << i;
    if (i % 3 != 2) continue;
    for (Net* n : {&eager, &net}) n->optimizer->step(), n->optimizer->zero_grad();
    EXPECT_EQ(values(net.b), values(eager.b)) << i;
  }
  // One that adds to the gradients of the warm-up, one that makes them, one that adds to those.
  EXPECT_EQ(steps.steps.captures(), 3);
  EXPECT_EQ(steps.runs, 4);
}

TEST(Graphed, OtherGradientsAtEachCallAreRefusedInTheEnd) {
  Net net(Net::last);
  Steps steps;
  const auto read = [&](const TensorList& in) { return net.a.grad().sum() + in[0]; };
  std::string text;
  for (int i = 0; i < 10 && text.empty(); ++i) {
    Tensor(net.a).set_grad(full({4, 8}, 1.0 * i));
    try {
      EXPECT_EQ(steps(read, {ones({})}).item(), 32 * i + 1) << i;
    } catch (const DeviceError& e) {
      text = e.what();
    }
  }
  EXPECT_NE(text.find("other gradients at each call"), std::string::npos) << text;
}

TEST(Graphed, LeavesThatTheStepMakesAreItsOwn) {
  Steps steps;
  const Tensor w = full({4}, 3.0);
  const auto slope = [&](const TensorList& in) {
    Tensor a = in[0].detach(), b = zeros({4});
    a.set_requires_grad(), b.set_requires_grad();
    (a * a * w + b * in[0]).sum().backward();
    return a.grad() + b.grad();
  };
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(values(steps(slope, {full({4}, 1.0 * i)})), std::vector<float>(4, 7.f * i)) << i;
  EXPECT_EQ(steps.runs, 2);
  EXPECT_EQ(steps.steps.replays(), 4);
}

TEST(Graphed, WhatFailsLeavesEverythingAsItWas) {
  Net net(Net::first);
  Steps steps;
  const TensorList in{ones({3, 4}), ones({3, 1})};
  const char* what = "";
  const auto step = [&](const TensorList& t) {
    const Tensor loss = net.step(t);
    if (*what == 'd') throw DeviceError("item", "reads a value");
    if (*what == 'v') throw ValueError("mine", "stop");
    if (*what == 'w') NoGrad(), Tensor(t[0]).fill_(3);
    return loss;
  };
  steps(step, in);
  const std::vector<float> a = values(net.a), g = values(net.a.grad());
  const auto text = [&](const char* which) {
    what = which;
    std::string said;
    try {
      steps(step, in);
    } catch (const Error& e) {
      said = e.what();
    }
    what = "";
    EXPECT_EQ(values(net.a), a);
    EXPECT_EQ(values(net.a.grad()), g);
    EXPECT_EQ(steps.alive, 0);
    return said;
  };
  EXPECT_TRUE(text("d").starts_with("graphed: the step cannot be captured as one graph: item: reads a value"));
  EXPECT_EQ(text("v"), "mine: stop");
  EXPECT_NE(text("w").find("writes to its argument 0"), std::string::npos);
  EXPECT_NE(text("w").find("Nothing of this call was run"), std::string::npos);
  steps(step, in);  // and now it is captured
  steps(step, in);
  EXPECT_EQ(steps.steps.captures(), 1);
  EXPECT_EQ(steps.steps.replays(), 1);

  Net plain(Net::first);
  for (int i = 0; i < 3; ++i) plain.step(in);
  EXPECT_EQ(values(net.a), values(plain.a));
}

TEST(Graphed, FallsBackWhereItIsAskedTo) {
  Net net(Net::first), eager(Net::first);
  Steps steps({.fallback = true});
  const TensorList in{ones({3, 4}), ones({3, 1})};
  bool inside = false;
  for (int i = 0; i < 4; ++i) {
    const Tensor want = eager.step(in), got = steps(
                                            [&](const TensorList&t) {
                                              const Tensor loss = net.step(t);
                                              inside = i == 1 && steps.runs == 2;
                                              if (inside) throw DeviceError("item", "reads a value");
                                              return loss;
                                            },
                                            in);
    EXPECT_EQ(values(got), values(want)) << i;
    EXPECT_EQ(values(net.a), values(eager.a)) << i;
  }
  EXPECT_EQ(steps.runs, 5);
  EXPECT_EQ(steps.steps.captures(), 0);
  EXPECT_NE(steps.steps.note().find("runs op by op: item: reads a value"), std::string::npos);
  EXPECT_THROW(steps([](const TensorList&) -> Tensor { throw ValueError("mine", "stop"); }, in), ValueError);
}

TEST(Graphed, WhoWatchesOpsSeesThem) {
  Steps steps;
  const auto twice = [](const TensorList& in) { return in[0] * 2; };
  for (int i = 0; i < 3; ++i) steps(twice, {ones({2})});
  EXPECT_EQ(steps.runs, 2);
  const Tensor x = ones({2});
  EXPECT_EQ(record([&] { steps(twice, {x}); }).calls.size(), 1u);
  EXPECT_EQ(steps.runs, 3);
}

TEST(Graphed, RefusesWhatIsNoWholeStep) {
  Steps steps;
  const auto twice = [](const TensorList& in) { return in[0] * 2; };
  EXPECT_THROW(steps(twice, {ones({2}).set_requires_grad()}), AutogradError);
  {
    NoGrad guard;
    EXPECT_EQ(values(steps(twice, {ones({2}).set_requires_grad()})), std::vector<float>(2, 2.f));
  }
  {
    AutocastScope scope;
    EXPECT_THROW(steps(twice, {ones({2})}), ValueError);
  }
  EXPECT_THROW(steps([&](const TensorList& in) { return steps(twice, in); }, {ones({2})}), ValueError);
  const Tensor elsewhere = empty({{2}, DType::f32, Device::meta(), std::nullopt});
  Steps other;
  other(twice, {ones({2}), elsewhere});
  EXPECT_THROW(other(twice, {ones({2}), elsewhere}), DeviceError);
}

TEST(Graphed, ACopyOfAutocastFollowsItsParameter) {
  Tensor w = randn({16, 16}).set_requires_grad();
  Steps steps;
  const auto product = [&](const TensorList& in) {
    NoGrad guard;
    const AutocastScope low(DType::bf16);
    return matmul(in[0], w);
  };
  const Tensor x = randn({4, 16});
  for (int i = 0; i < 5; ++i) {
    const Tensor want = product({x});
    EXPECT_EQ(values(steps(product, {x})), values(want)) << i;
    NoGrad guard;
    w.mul_(1.5);
  }
  EXPECT_EQ(steps.steps.replays(), 3);
}

TEST(Graphed, TypesOfArgumentsAndResults) {
  using Pair = std::pair<Tensor, std::tuple<TensorList, int>>;
  auto step = graphed([](const Pair& p, double factor, const std::string& how) {
    const Tensor y = p.first * factor + std::get<0>(p.second).at(1);
    return std::tuple(how == "sum" ? y.sum() : y, TensorList{y, Tensor()}, std::get<1>(p.second));
  });
  for (int i = 0; i < 3; ++i) {
    const auto [y, list, n] = step(Pair{ones({2}), {{Tensor(), full({2}, i)}, 7}}, 2.0, "sum");
    EXPECT_EQ(y.item(), 2 * (2 + i));
    EXPECT_EQ(values(list.at(0)), std::vector<float>(2, static_cast<float>(2 + i)));
    EXPECT_FALSE(list.at(1).defined());
    EXPECT_EQ(n, 7);
  }
  int calls = 0;
  auto none = graphed([&](const TensorList& l) { calls += static_cast<int>(l.size()); });
  none(TensorList{ones({1}), ones({2})});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(none.graphs() + none.captures() + none.replays(), 0);  // a CPU has no graphs
  EXPECT_EQ(none.note(), "");
  none.clear();
}

}  // namespace
}  // namespace strata
