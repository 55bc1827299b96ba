// A program's own loop within a budget: the bits of the loop without it, in the memory that it gives.

#include "strata/train/budget_scope.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/io/temp_dir.h"
#include "strata/lab/profile.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/nn/nn.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"
#include "strata/optim/record.h"
#include "strata/train/tiers.h"

namespace strata {
namespace {

using Bits = std::vector<uint8_t>;

Bits bits(const Tensor& given) {
  if (!given.defined()) return {};
  const NoGrad guard;
  const Tensor t = given.detach().to(Device::cpu()).contiguous();
  const Pin pin(t, Access::read);
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

// A network with its loss of a batch.
struct Program {
  nn::Module net;
  std::function<Tensor(const Tensor&)> loss;
  Shape input;
};

Program mlp() {
  nn::Sequential net(nn::Linear(256, 1024), nn::ReLU(), nn::Dropout(0.1));
  for (int i = 0; i < 5; ++i) {
    net.push_back(nn::Linear(1024, 1024));
    net.push_back(nn::GELU());
  }
  net.push_back(nn::Linear(1024, 16));
  return {net, [net](const Tensor& x) { return mean(square(net(x))); }, {2048, 256}};
}

Program cnn() {
  nn::Sequential net(nn::Conv2d(3, 32, 3, {.padding = {1}}), nn::BatchNorm2d(32), nn::ReLU());
  for (int i = 0; i < 9; ++i) {
    net.push_back(nn::Conv2d(32, 32, 3, {.padding = {1}}));
    net.push_back(nn::ReLU());
  }
  net.push_back(nn::MaxPool2d(2));
  net.push_back(nn::Flatten());
  net.push_back(nn::Linear(32 * 16 * 16, 10));
  return {net, [net](const Tensor& x) { return mean(square(net(x))); }, {32, 3, 32, 32}};
}

// Blocks in a list, a tied head, a branch.
struct Decoder : nn::Module {
  struct Block : nn::Module {
    nn::LayerNorm norm = register_module("norm", nn::LayerNorm(Shape{256}));
    nn::Linear up = register_module("up", nn::Linear(256, 1024));
    nn::Linear down = register_module("down", nn::Linear(1024, 256));
    Tensor forward(const Tensor& x) const { return x + down(gelu(up(norm(x)))); }
  };
  Decoder() {
    for (int i = 0; i < 6; ++i) blocks.push_back(Block());
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = matmul(x, table);
    for (const Block& b : blocks) y = b.forward(y);
    return mean(square(matmul(y, transpose(table, 0, 1))));
  }
  Tensor table = register_parameter("table", randn({64, 256}) * 0.1);
  nn::ModuleList<Block> blocks = register_module("blocks", nn::ModuleList<Block>());
};
Program decoder() {
  const auto net = std::make_shared<Decoder>();
  return {*net, [net](const Tensor& x) { return net->forward(x); }, {1024, 64}};
}

// Each of its calls can run again from the one before, and the batch is one that the loop holds.
struct Chain : nn::Module {
  Chain() {
    for (int i = 0; i < 4; ++i) layers.push_back(nn::Linear(256, 256, false));
  }
  Tensor forward(const Tensor& x) const {
    Tensor h = x;
    for (const nn::Linear& layer : layers) h = tanh(layer(h)) + h;
    return mean(h * h);
  }
  nn::ModuleList<nn::Linear> layers = register_module("layers", nn::ModuleList<nn::Linear>());
};
Program chain() {
  const auto net = std::make_shared<Chain>();
  const auto held = std::make_shared<Tensor>();
  return {*net,
          [net, held](const Tensor& x) {
            if (!held->defined()) *held = x;
            return net->forward(*held);
          },
          {2048, 256}};
}

struct Case {
  std::string optimizer = "adamw";
  int steps = 4;
  int passes = 1;
  bool evaluates = false;
  Device device = Device::cpu();
};
struct Outcome {
  std::vector<Bits> all;
  int64_t peak = 0;
  std::string text;
  std::optional<TierPlan> plan;
};

std::unique_ptr<optim::Optimizer> optimizer_of(const std::string& name, const nn::Module& net) {
  return optim::make_optimizer(name, {{net.named_parameters(), {{"lr", 1e-3}}}});
}

// The loop: without a budget where `memory` is none.
Outcome run(const std::function<Program()>& make, const MemoryConfig* memory, const Case& c = {}) {
  const DeviceScope there(c.device);
  manual_seed(3);
  Outcome o;
  const Program p = make();
  const auto optimizer = optimizer_of(c.optimizer, p.net);
  memory::reset_peak(c.device);
  {
    std::optional<BudgetScope> budget;
    if (memory) budget.emplace(p.net, *optimizer, *memory);
    for (int i = 0; i < c.steps; ++i) {
      optimizer->zero_grad();
      for (int k = 0; k < c.passes; ++k) {
        const Tensor loss = p.loss(randn(p.input));
        loss.backward();
        o.all.push_back(bits(loss));
      }
      if (budget) {
        budget->step([&] { optimizer->step(); });
      } else {
        optimizer->step();
      }
      if (c.evaluates) {
        const NoGrad guard;
        o.all.push_back(bits(p.loss(randn(p.input))));
      }
    }
    if (budget) {
      EXPECT_TRUE(budget->planned());
      o.peak = budget->peak();
      o.text = budget->describe();
      o.plan = budget->plan();
    } else {
      o.peak = memory::stats(c.device).peak_total;
    }
  }
  const Tier own = memory::backend(c.device).tier;
  for (const auto& [name, t] : p.net.named_parameters()) {
    EXPECT_TRUE(t.tier() == own) << name;  // it came back
    o.all.push_back(bits(t));
    o.all.push_back(bits(t.grad()));
  }
  for (const auto& [name, t] : p.net.named_buffers()) o.all.push_back(bits(t));
  for (const auto& [name, t] : optimizer->state_dict()) {
    EXPECT_TRUE(t.tier() == memory::backend(t.device()).tier) << name;
    o.all.push_back(bits(t));
  }
  return o;
}

class Budgets : public testing::Test {
 protected:
  MemoryConfig with(int64_t device) {
    MemoryConfig m;
    m.device = std::to_string(device);
    m.disk = dir_.path();
    return m;
  }
  void expect_same(const std::function<Program()>& make, double share, const Case& c = {}) {
    const Outcome plain = run(make, nullptr, c);
    const int64_t before = tensors(c.device);
    const int64_t device = static_cast<int64_t>(share * static_cast<double>(plain.peak));
    const MemoryConfig memory = with(device);
    const Outcome kept = run(make, &memory, c);
    EXPECT_LE(kept.peak, device) << kept.text;
    EXPECT_LT(kept.peak, plain.peak);
    ASSERT_EQ(kept.all.size(), plain.all.size());
    for (size_t i = 0; i < plain.all.size(); ++i) EXPECT_TRUE(kept.all[i] == plain.all[i]) << i << "\n" << kept.text;
    EXPECT_EQ(tensors(c.device), before);
    last_ = kept;
  }
  // Without what kernels keep for their next call.
  static int64_t tensors(Device device) {
    const memory::Stats s = memory::stats(device);
    return s.live_total - s.live[static_cast<int>(memory::Tag::workspace)];
  }
  // One for all: how fast its disk is is measured once.
  static void SetUpTestSuite() { folder() = std::make_unique<io::TempDir>(); }
  static void TearDownTestSuite() { folder().reset(); }
  static std::unique_ptr<io::TempDir>& folder() {
    static std::unique_ptr<io::TempDir> dir;
    return dir;
  }
  const io::TempDir& dir_ = *folder();
  Outcome last_;
};

TEST_F(Budgets, AnyNetworkTrainsToTheSameBits) {
  for (const double share : {0.8, 0.55}) {
    SCOPED_TRACE(share);
    expect_same(mlp, share);
    EXPECT_TRUE(last_.plan->moves()) << last_.text;
    expect_same(cnn, share);
    expect_same(decoder, share);
  }
}

TEST_F(Budgets, GradientsOfSeveralPassesAddUpAndEvaluationComesBetween) {
  expect_same(decoder, 0.6, {.passes = 3});
  expect_same(decoder, 0.6, {.evaluates = true});
  expect_same(mlp, 0.6, {.passes = 2, .evaluates = true});
}

TEST_F(Budgets, OptimizersOfEveryRecord) {
  for (const optim::OptimizerRecord* record : optim::optimizer_records()) {
    SCOPED_TRACE(record->name);
    if (record->name == "sparse_adam") continue;  // its gradients are lists of rows
    expect_same(decoder, 0.6, {.optimizer = std::string(record->name), .steps = 3});
  }
}

TEST_F(Budgets, EachKeyAloneAndAllTogether) {
  const Outcome plain = run(decoder, nullptr);
  const auto check = [&](auto&& set) {
    MemoryConfig m;
    m.disk = dir_.path();
    set(m);
    const Outcome o = run(decoder, &m);
    SCOPED_TRACE(o.text);
    EXPECT_TRUE(o.all == plain.all);
    return *o.plan;
  };
  EXPECT_EQ(check([](MemoryConfig& m) { m.activations = "disk"; }).activations, Place::disk);
  EXPECT_EQ(check([](MemoryConfig& m) { m.state = "disk"; }).state, Place::disk);
  EXPECT_GT(check([](MemoryConfig& m) { m.recompute = "blocks"; }).recomputed, 5);
  EXPECT_EQ(check([](MemoryConfig& m) { m.state = m.parameters = "disk"; }).parameters, Place::disk);
  const TierPlan all =
      check([](MemoryConfig& m) { m.state = m.parameters = m.activations = "disk", m.recompute = "blocks"; });
  EXPECT_TRUE(all.parameters == Place::disk && all.activations == Place::disk && all.recomputed > 5);
}

TEST_F(Budgets, AMiddleOfBlocksIsComputedAgainWithoutADisk) {
  const Outcome plain = run(decoder, nullptr);
  MemoryConfig m;
  m.device = std::to_string(plain.peak);  // the first steps keep everything
  m.recompute = "blocks";
  const Outcome o = run(decoder, &m, {});
  EXPECT_TRUE(o.all == plain.all);
  EXPECT_GT(o.plan->recomputed, 0);
  EXPECT_LT(o.plan->peak.device, plain.peak);
}

// What comes into blocks that are computed again is most of what is left to leave.
TEST_F(Budgets, WhatBlocksAreComputedFromLeavesToo) {
  for (const auto& [make, optimizer] : {std::pair(&cnn, "sgd"), std::pair(&decoder, "adamw")}) {
    const Case c{.optimizer = optimizer, .steps = 5, .passes = 2};
    const Outcome plain = run(make, nullptr, c);
    MemoryConfig m = with(plain.peak * 7 / 10);
    m.recompute = "blocks";
    m.activations = "disk";
    const Outcome o = run(make, &m, c);
    SCOPED_TRACE(o.text);
    EXPECT_TRUE(o.all == plain.all);
    EXPECT_LE(o.peak, plain.peak * 7 / 10);
    EXPECT_GT(o.plan->recomputed, 0);
    EXPECT_GT(o.plan->leaving, 0);
    EXPECT_NE(o.text.find("activations: "), std::string::npos);
    EXPECT_EQ(o.text.find("activations: 0 B sent"), std::string::npos);
  }
}

// Blocks that the program itself computes again begin and end amid those that the plan has.
TEST_F(Budgets, ProgramsThatCheckpointTrainToTheSameBits) {
  const auto make = [] {
    const auto net = std::make_shared<Decoder>();
    return Program{*net,
                   [net](const Tensor& x) {
                     Tensor y = matmul(x, net->table);
                     for (const Decoder::Block& b : net->blocks)
                       y = checkpoint([&](const Tensor& t) { return b.forward(t); }, y);
                     return mean(square(matmul(y, transpose(net->table, 0, 1))));
                   },
                   {1024, 64}};
  };
  const Outcome plain = run(make, nullptr);
  for (const char* activations : {"auto", "disk"}) {
    MemoryConfig m = with(plain.peak);
    m.recompute = "blocks";
    m.activations = activations;
    const Outcome o = run(make, &m);
    EXPECT_GT(o.plan->recomputed, 0);
    EXPECT_TRUE(o.all == plain.all) << o.text;
  }
  expect_same(make, 0.8);
}

// What is made again in backward, and what it is made from, is within the budget too.
TEST_F(Budgets, ALoopThatTakesMoreRunsWithin) {
  for (const double share : {0.95, 0.9, 0.8, 0.7}) expect_same(chain, share, {.steps = 6});
}

TEST_F(Budgets, WhatFitsStaysWhereItIs) {
  const Outcome plain = run(decoder, nullptr);
  const MemoryConfig m = with(4 * plain.peak);
  const Outcome o = run(decoder, &m);
  EXPECT_TRUE(o.all == plain.all);
  EXPECT_FALSE(o.plan->moves()) << o.text;
  EXPECT_NEAR(static_cast<double>(o.plan->peak.device), static_cast<double>(plain.peak),
              0.1 * static_cast<double>(plain.peak));
  EXPECT_GT(o.plan->seconds, 0);
  const MemoryConfig none;
  const Outcome free = run(decoder, &none);
  EXPECT_TRUE(free.all == plain.all);
  EXPECT_FALSE(free.plan->moves());
}

TEST_F(Budgets, SaysWhatItIsAt) {
  const Program p = decoder();
  const auto optimizer = optimizer_of("adamw", p.net);
  BudgetScope budget(p.net, *optimizer, with(60 << 20));
  EXPECT_FALSE(budget.planned());
  EXPECT_NE(budget.describe().find("step 1 of the first 2"), std::string::npos) << budget.describe();
  for (int i = 0; i < 3; ++i) {
    p.loss(randn(p.input)).backward();
    EXPECT_EQ(budget.step([&] { return optimizer->step_clipped(1.0) > 0; }), true);
    optimizer->zero_grad();
  }
  EXPECT_TRUE(budget.planned());
  const std::string text = budget.describe();
  for (const char* part : {"weights       ", "activations   ", "of 60.00 MiB", "after 3 steps"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_TRUE(budget.advice().empty());
  budget.close();
  EXPECT_THROW(budget.plan(), ValueError);
  EXPECT_THROW(budget.step([] {}), ValueError);
}

TEST_F(Budgets, ExceptionsLeaveEverythingUsable) {
  const Outcome plain = run(decoder, nullptr);
  manual_seed(3);
  const Program p = decoder();
  const auto optimizer = optimizer_of("adamw", p.net);
  const int64_t most = plain.peak * 6 / 10;
  std::vector<Bits> all;
  int failed = 0;
  {
    BudgetScope budget(p.net, *optimizer, with(most));
    for (int i = 0; i < 4; ++i) {
      const RngKey before = default_generator().state();
      for (bool again = true; again;) {
        again = false;
        optimizer->zero_grad();
        try {
          const Tensor loss = p.loss(randn(p.input));
          if (failed == 2 * i) {
            ++failed;
            throw std::runtime_error("between forward and backward");
          }
          loss.backward();
          budget.step([&] {
            if (failed == 2 * i + 1) {
              ++failed;
              throw std::runtime_error("in the update");
            }
            optimizer->step();
          });
          all.push_back(bits(loss));
        } catch (const std::runtime_error&) {
          default_generator().set_state(before);
          again = true;
        }
      }
    }
    EXPECT_EQ(failed, 8);
    EXPECT_LE(budget.peak(), most);
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(all[i] == plain.all[i]) << i;
  size_t at = all.size();
  for (const auto& [name, t] : p.net.named_parameters()) {
    EXPECT_TRUE(bits(t) == plain.all[at]) << name;
    at += 2;
  }
  // Out of the loop altogether.
  try {
    BudgetScope budget(p.net, *optimizer, with(most));
    p.loss(randn(p.input)).backward();
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(memory::set_limit(0), 0);
  for (const Tensor& t : p.net.parameters()) EXPECT_TRUE(t.tier() == Tier::host);
}

TEST_F(Budgets, ARequestPastItIsAnErrorThatNamesABudget) {
  const Program p = decoder();
  const auto optimizer = optimizer_of("adamw", p.net);
  BudgetScope budget(p.net, *optimizer, with(40 << 20));
  EXPECT_THROW(zeros({100 << 18}), MemoryError);
  const std::string text = budget.advice();
  EXPECT_NE(text.find("the budget of 40.00 MiB was not enough"), std::string::npos) << text;
  EXPECT_NE(text.find("device = \""), std::string::npos) << text;
  p.loss(randn(p.input)).backward();  // and all goes on
  budget.step([&] { optimizer->step(); });
}

TEST_F(Budgets, SettingsThatMakeNoSense) {
  const Program p = mlp();
  const auto optimizer = optimizer_of("adamw", p.net);
  const auto refuse = [&](const MemoryConfig& m, const std::string& part) {
    try {
      BudgetScope budget(p.net, *optimizer, m);
      FAIL() << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    EXPECT_EQ(memory::set_limit(0), 0);
    for (const Tensor& t : p.net.parameters()) EXPECT_TRUE(t.tier() == Tier::host);
  };
  refuse({.device = "much"}, "memory.device");
  refuse({.host = "1GiB"}, "memory.host is beside a card");
  refuse({.activations = "disk"}, "memory.disk");
  refuse({.activations = "somewhere"}, "memory.activations");
  refuse({.disk = dir_.path(), .state = "device", .parameters = "disk"}, "the state has to be elsewhere");
  refuse({.device = "1MiB"}, "are on cpu before the loop begins, more than the budget of 1.00 MiB");
  refuse({.disk = dir_.path() + "/no such folder"}, "no such folder");
  EXPECT_THROW(BudgetScope(nn::Module(), with(1 << 30)), ValueError);
  const Program dry = [] {
    const DeviceScope meta(Device::meta());
    return mlp();
  }();
  EXPECT_THROW(BudgetScope(dry.net, with(1 << 30)), ValueError);
}

TEST_F(Budgets, OneScopeAtATimeOnItsThread) {
  const Program p = mlp();
  const auto optimizer = optimizer_of("adamw", p.net);
  std::optional<BudgetScope> budget(std::in_place, p.net, *optimizer, with(100 << 20));
  EXPECT_THROW(BudgetScope(p.net, *optimizer, with(100 << 20)), ValueError);
  std::thread([&] {
    EXPECT_THROW(BudgetScope(p.net, *optimizer, with(100 << 20)), ValueError);
    EXPECT_THROW(budget->step([] {}), ValueError);
    // Others compute beside it, within the same bound.
    const Tensor x = randn({64, 64});
    x.sum().item();
  }).join();
  budget.reset();
  budget.emplace(p.net, *optimizer, with(100 << 20));  // a second loop after the first
}

TEST_F(Budgets, TwoLoopsOneAfterTheOtherAreOne) {
  const Outcome plain = run(decoder, nullptr, {.steps = 8});
  manual_seed(3);
  const Program p = decoder();
  const auto optimizer = optimizer_of("adamw", p.net);
  std::vector<Bits> losses;
  for (const double share : {0.6, 0.45}) {
    BudgetScope budget(p.net, *optimizer, with(static_cast<int64_t>(share * static_cast<double>(plain.peak))));
    for (int i = 0; i < 4; ++i) {
      optimizer->zero_grad();
      const Tensor loss = p.loss(randn(p.input));
      loss.backward();
      losses.push_back(bits(loss));
      budget.step([&] { optimizer->step(); });
    }
  }
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_TRUE(losses[i] == plain.all[i]) << i;
}

// Whoever watches calls may begin and end within it, and around steps of it.
TEST_F(Budgets, ObserversMayEndInAnyOrder) {
  const Outcome plain = run(decoder, nullptr, {.steps = 4});
  manual_seed(3);
  const Program p = decoder();
  const auto optimizer = optimizer_of("adamw", p.net);
  BudgetScope budget(p.net, *optimizer, with(plain.peak * 45 / 100));
  std::optional<Recorder> recorder;
  for (int i = 0; i < 4; ++i) {
    optimizer->zero_grad();
    const Tensor loss = p.loss(randn(p.input));
    if (i == 1) recorder.emplace();  // within a step
    loss.backward();
    EXPECT_TRUE(bits(loss) == plain.all[static_cast<size_t>(i)]);
    budget.step([&] { optimizer->step(); });
  }
  EXPECT_GT(recorder->finish().calls.size(), 100u);
}

// An update of the program's own.
TEST_F(Budgets, UpdatesThatAreNoOptimizer) {
  const auto train = [&](const MemoryConfig* memory) {
    manual_seed(5);
    const Program p = decoder();
    std::vector<Bits> all;
    memory::reset_peak(Device::cpu());
    std::optional<BudgetScope> budget;
    if (memory) budget.emplace(p.net, *memory);
    for (int i = 0; i < 4; ++i) {
      const Tensor loss = p.loss(randn(p.input));
      loss.backward();
      all.push_back(bits(loss));
      const auto update = [&] {
        const NoGrad guard;
        for (Tensor t : p.net.parameters()) {
          t.sub_(t.grad() * 0.01);
          t.set_grad({});
        }
      };
      if (budget)
        budget->step(update);
      else
        update();
    }
    return std::pair(all, memory::stats(Device::cpu()).peak_total);
  };
  const auto [plain, peak] = train(nullptr);
  const MemoryConfig m = with(peak * 7 / 10);
  const auto [kept, less] = train(&m);
  EXPECT_TRUE(kept == plain);
  EXPECT_LE(less, peak * 7 / 10);
  MemoryConfig state = m;
  state.state = "disk";
  EXPECT_THROW(BudgetScope(decoder().net, state), ValueError);
}

// A plan by which all stays, in less than that takes: what was saved goes to the budget's disk, though the plan sends
// nothing there, and the gradients are the same. Where there is room nothing goes, and nothing is told of it.
TEST_F(Budgets, APlanThatWasTooLowCostsCopiesAndNoStep) {
  const Program p = mlp();
  manual_seed(2);
  const Tensor x = randn(p.input);
  const auto gradients = [&](const TierPlan& plan, std::string* told) {
    Tiers::use_disk(plan, Device::cpu());
    const Tiers tiers(plan, p.net, nullptr, Device::cpu());
    manual_seed(3);
    Tensor loss;
    {
      const Tiers::Forward forward(&tiers);
      loss = p.loss(x);
    }
    loss.backward();
    loss = Tensor();
    if (told) *told = tiers.summary();
    std::vector<Bits> all;
    for (const Tensor& t : p.net.parameters()) {
      all.push_back(bits(t.grad()));
      Tensor(t).set_grad({});
    }
    return all;
  };
  memory::reset_peak(Device::cpu());
  const int64_t before = memory::stats(Device::cpu()).live_total;
  const std::vector<Bits> want = gradients({}, nullptr);
  const int64_t whole = memory::stats(Device::cpu()).peak_total - before;
  TierPlan plan{.budget = {.device = before + 2 * whole, .disk = {dir_.path()}}, .least = int64_t{64} << 10};
  EXPECT_TRUE(Tiers::uses_disk(plan, Device::cpu()));
  std::string told;
  EXPECT_TRUE(gradients(plan, &told) == want);
  EXPECT_EQ(told, "");
  plan.budget.device = before + whole / 100 * 75;
  EXPECT_TRUE(gradients(plan, &told) == want);
  EXPECT_NE(told.find("activations: "), std::string::npos) << told;
}

}  // namespace
}  // namespace strata
