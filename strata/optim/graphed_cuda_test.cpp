// Steps as graphs of a card beside the same steps op by op.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"
#include "strata/strata.h"

namespace strata {
namespace {

class GraphedOnCard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

Tensor on_card(const Tensor& t) {
  return t.to(Device::cuda());
}
std::vector<float> values(const Tensor& t) {
  return t.detach().to_vector<float>();
}

// Three layers with dropout, an optimizer over them and a schedule.
struct Net {
  explicit Net(std::string_view kind, DType low = DType::f32) : low(low) {
    manual_seed(7);
    for (int64_t i = 0; i < 3; ++i) {
      weights.push_back(on_card(randn({i == 0 ? 12 : 32, i == 2 ? 4 : 32}) * 0.2).set_requires_grad());
      biases.push_back(on_card(zeros({i == 2 ? 4 : 32})).set_requires_grad());
    }
    TensorList all = weights;
    if (kind != "muon") all.insert(all.end(), biases.begin(), biases.end());  // it takes matrices
    const optim::OptimizerRecord& record = optim::optimizer_record(std::string(kind));
    optimizer = record.make(record, {{optim::number_params(all), {}}});
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    Tensor loss;
    {
      std::optional<AutocastScope> cast;
      if (low != DType::f32) cast.emplace(low);
      Tensor h = x;
      for (size_t i = 0; i < 3; ++i) {
        h = matmul(h, weights[i]) + biases[i];
        if (i < 2) h = dropout(relu(h), 0.25);
      }
      loss = cross_entropy(h.to(DType::f32), y);
    }
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss;
  }
  std::vector<std::vector<float>> state() const {
    std::vector<std::vector<float>> all;
    for (const TensorList* list : {&weights, &biases})
      for (const Tensor& t : *list) all.push_back(values(t));
    for (const auto& [name, t] : optimizer->state_dict()) all.push_back(values(t.to(DType::f32)));
    return all;
  }
  DType low;
  TensorList weights, biases;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Batch i of 64, or of 24 where `turns` and i is odd.
std::pair<Tensor, Tensor> batch(int i, bool turns = false) {
  Generator own(static_cast<uint64_t>(100 + i));
  const int64_t n = turns && i % 2 ? 24 : 64;
  return {on_card(randn({n, 12}, DType::f32, own)), on_card(randint(0, 4, {n}, DType::i64, own))};
}

// Losses and state of 20 steps, op by op or as graphs.
struct Outcome {
  std::vector<std::vector<float>> losses, state;
  RngKey random;
  bool operator==(const Outcome&) const = default;
};
Outcome train(std::string_view kind, bool as_graph, bool turns, DType low = DType::f32) {
  Net net(kind, low);
  auto step = graphed([&](const Tensor& x, const Tensor& y) { return net.step(x, y); });
  manual_seed(3);
  std::vector<Tensor> losses;
  const double lr = net.optimizer->lr();
  for (int i = 0; i < 20; ++i) {
    net.optimizer->set_lr(lr / (1 + i));
    const auto [x, y] = batch(i, turns);
    losses.push_back(as_graph ? step(x, y) : net.step(x, y).detach());
  }
  EXPECT_EQ(step.captures(), as_graph ? (turns ? 2 : 1) : 0);
  EXPECT_EQ(step.replays(), as_graph ? (turns ? 16 : 18) : 0);
  Outcome o;
  for (const Tensor& t : losses) o.losses.push_back(values(t));
  o.state = net.state();
  o.random = default_generator().state();
  return o;
}

TEST_F(GraphedOnCard, TwentyStepsWithDropoutAndAScheduleHaveTheBitsOfEager) {
  for (const bool turns : {false, true})
    EXPECT_TRUE(train("adamw", true, turns) == train("adamw", false, turns)) << turns;
}

TEST_F(GraphedOnCard, EveryOptimizerThatCanBeCaptured) {
  for (const optim::OptimizerRecord* record : optim::optimizer_records()) {
    Net probe(record->name);
    if (!probe.optimizer->capturable()) continue;
    EXPECT_TRUE(train(record->name, true, false) == train(record->name, false, false)) << record->name;
  }
}

TEST_F(GraphedOnCard, AutocastInsideTheStep) {
  EXPECT_TRUE(train("adamw", true, true, DType::bf16) == train("adamw", false, true, DType::bf16));
}

TEST_F(GraphedOnCard, AGuardedStepWithALossScale) {
  const auto run = [](bool as_graph) {
    Net net("adamw");
    optim::LossScaler scaler(Device::cuda(), {.init = 8, .growth_interval = 3});
    Tensor report;
    const auto body = [&](const Tensor& x, const Tensor& y) {
      const Tensor loss = cross_entropy(matmul(matmul(x, net.weights[0]).tanh(), net.weights[2]), y);
      scaler.scale(loss).backward();
      Tensor r = net.optimizer->step_guarded({.max_norm = 0.5, .loss = loss.detach(), .scaler = &scaler});
      net.optimizer->zero_grad();
      return std::pair(loss, r.clone());
    };
    auto step = graphed(body);
    std::vector<std::vector<float>> all;
    for (int i = 0; i < 12; ++i) {
      const auto [x, y] = batch(i);
      const auto [loss, r] = as_graph ? step(x, y) : body(x, y);
      all.push_back(values(loss));
      all.push_back(values(r.to(DType::f32)));
    }
    all.push_back({static_cast<float>(scaler.value())});
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

// What the second call of graphed(fn) throws.
template <class F>
std::string refusal(F fn, const Tensor& x) {
  auto step = graphed(fn);
  step(x);
  try {
    step(x);
  } catch (const Error& e) {
    EXPECT_EQ(step.graphs(), 0);
    EXPECT_FALSE(cuda::capturing());
    return e.what();
  }
  return "captured";
}

TEST_F(GraphedOnCard, WhatCannotBeCapturedSaysSoAndLeavesNothingBehind) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << ", wanted: " << part;
  };
  const Tensor x = on_card(randn({64})), w = on_card(randn({64})).set_requires_grad();
  manual_seed(9);
  double seen = 0;
  has(refusal([&](const Tensor& t) { seen = (t * 2).sum().item(); }, x), "item()");
  has(refusal([](const Tensor& t) { return nonzero(t); }, x), "nonzero");
  // A few bytes of the host are recorded as the values that they are.
  has(refusal([](const Tensor& t) { return t.sum() + ones({4096}).to(Device::cuda()).sum(); }, x), "not pinned");
  has(refusal([](const Tensor& t) { cuda::synchronize(), t.exp(); }, x), "waits for the device");
  has(refusal([](const Tensor& t) { NoGrad(), Tensor(t).add_(1); }, x), "writes to its argument 0");
  int calls = 0;
  has(refusal(
          [&](const Tensor& t) {
            (t * w).sum().backward();
            if (++calls == 2) throw ValueError("mine", "stop");
          },
          x),
      "mine: stop");
  EXPECT_EQ(values(w.grad()), values(x));  // of the first call
  EXPECT_EQ(default_generator().state(), (RngKey{9, 0}));

  auto both = graphed([](const Tensor& a, const Tensor& b) { return a.sum() + b.to(Device::cuda()).sum(); });
  both(x, ones({2}));
  EXPECT_THROW(both(x, ones({2})), DeviceError);
  optim::HostBound on_the_host({w});
  has(refusal(
          [&](const Tensor& t) {
            (t * w).sum().backward();
            on_the_host.step();
            on_the_host.zero_grad();
          },
          x),
      "cannot be captured");

  // Op by op where that is wanted, with the same numbers.
  auto anyway = graphed([](const Tensor& t) { return full({}, dropout(t, 0.5).sum().item()); }, {.fallback = true});
  manual_seed(4);
  std::vector<double> got, want;
  for (int i = 0; i < 4; ++i) got.push_back(anyway(x).item());
  manual_seed(4);
  for (int i = 0; i < 4; ++i) want.push_back(full({}, dropout(x, 0.5).sum().item()).item());
  EXPECT_EQ(got, want);
  has(anyway.note(), "item()");
}

TEST_F(GraphedOnCard, MemoryIsStableAndComesBack) {
  memory::release_cached();
  const int64_t reserved = memory::stats(DeviceType::cuda).reserved, live = memory::stats(DeviceType::cuda).live_total;
  {
    Net net("adamw");
    auto step = graphed([&](const Tensor& x, const Tensor& y) { return net.step(x, y); });
    const auto [x, y] = batch(0);
    for (int i = 0; i < 5; ++i) step(x, y);
    cuda::synchronize();
    const int64_t now = memory::stats(DeviceType::cuda).live_total;
    for (int i = 0; i < 100; ++i) step(x, y);
    cuda::synchronize();
    EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, now);
    EXPECT_EQ(step.replays(), 103);
  }
  EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, live);
  memory::release_cached();
  EXPECT_LE(memory::stats(DeviceType::cuda).reserved, reserved + (4 << 20));
}

TEST_F(GraphedOnCard, StepsLiveAndDieBesideEachOther) {
  NoGrad guard;
  const Tensor x = on_card(full({1 << 16}, 2.0));
  const auto make = [](double factor) {
    return graphed([factor](const Tensor& t) {
      Tensor y = t;
      for (int i = 0; i < 3; ++i) y = y * factor + t;
      return y;
    });
  };
  auto first = std::make_optional(make(2)), second = std::make_optional(make(3));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(values((*first)(x)).at(5), 30.f);
    EXPECT_EQ(values((*second)(x)).at(5), 80.f);
  }
  const Tensor kept = (*first)(x);
  first.reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values((*second)(x)).at(7), 80.f);
  EXPECT_EQ(values(kept).back(), 30.f);
  // What a graph reads may have no other owner by now.
  auto step = [&] {
    const Tensor held = on_card(full({1 << 16}, 5.0));
    auto one = graphed([w = std::make_shared<Tensor>(held)](const Tensor& t, bool drop) mutable {
      const Tensor y = t * *w;
      if (drop) *w = Tensor(*w).clone();
      return y;
    });
    for (int i = 0; i < 3; ++i) one(x, false);
    one(x, true);
    return one;
  }();
  const Tensor others = on_card(full({1 << 16}, 9.0));
  EXPECT_EQ(values(step(x, false)).at(1), 10.f);
  EXPECT_EQ(values(others).at(1), 9.f);
}

TEST_F(GraphedOnCard, OtherStreamsWaitForEachOther) {
  NoGrad guard;
  auto step = graphed([](const Tensor& t) { return (t * 2 + 1).sum(); });
  const Tensor x = on_card(full({1 << 20}, 1.0));
  for (int i = 0; i < 6; ++i) {
    const cuda::Stream side = cuda::Stream::create();
    const cuda::StreamScope scope(side);
    side.wait(cuda::Stream::main());
    const Tensor y = step(x);
    side.synchronize();
    EXPECT_EQ(y.item(), 3 << 20) << i;
  }
  EXPECT_EQ(step.captures(), 1);
}

}  // namespace
}  // namespace strata
