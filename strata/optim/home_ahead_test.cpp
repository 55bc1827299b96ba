// Updates that run after step() has returned: the bits of a step that waits, for everybody who reads.
#include <cmath>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/recording.h"
#include "strata/core/storage_watch.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/gradient_notes_inl.h"
#include "strata/optim/home_ahead_test_util.h"
#include "strata/optim/loss_scaler.h"

namespace strata::optim {
namespace {

struct Case {
  std::string name;
  const OptimizerRecord* record;
  OptionValues options;
  DType dtype, grad;
};
std::vector<Case> cases() {
  const OptionValues master{{"master_weights", true}},
      stochastic{{"stochastic_rounding", true}, {"rounding_seed", int64_t{7}}};
  std::vector<Case> all;
  for (const OptimizerRecord* r : optimizer_records()) {
    all.push_back({cat(r->name, " f32"), r, {}, DType::f32, DType::f32});
    all.push_back({cat(r->name, " f32, bf16 gradients"), r, {}, DType::f32, DType::bf16});
    all.push_back({cat(r->name, " f64"), r, {}, DType::f64, DType::f64});
    all.push_back({cat(r->name, " bf16 master"), r, master, DType::bf16, DType::bf16});
    all.push_back({cat(r->name, " bf16 stochastic"), r, stochastic, DType::bf16, DType::f32});
    if (!r->option("state_8bit")) continue;
    const OptionValues codes{{"state_8bit", true}, {"min_8bit_size", int64_t{0}}};
    all.push_back({cat(r->name, " f32, 8 bits"), r, codes, DType::f32, DType::f32});
    if (r->name == "adafactor") continue;
    OptionValues compensated = codes;
    compensated["compensated_weights"] = true;
    all.push_back({cat(r->name, " bf16 compensated, 8 bits"), r, compensated, DType::bf16, DType::bf16});
  }
  return all;
}

TEST_F(Ahead, EveryOptimizerStepsToTheSameBits) {
  for (const Case& c : cases())
    for (const Who who : {Who::device, Who::split}) {  // of the CPU both are the processor
      SCOPED_TRACE(cat(c.name, ", ", name_of(who)));
      const NamedTensors here = make_params(c.dtype, false), there = make_params(c.dtype, true);
      const auto want = make_optimizer(c.record->name, {{here, c.options}}),
                 got = make_optimizer(c.record->name, {{there, c.options}});
      got->set_home({.where = kAhead, .who = who, .ahead = true});
      for (uint64_t step = 0; step < 4; ++step) {
        for (Optimizer* o : {want.get(), got.get()}) {
          set_grads(o->params(), c.grad, step, step == 2 ? INFINITY : 1);
          if (step == 0) o->set_lr(0.02);
          if (step == 1 || step == 2) {
            EXPECT_EQ(std::isfinite(o->step_clipped(0.5)), step == 1);
          } else {
            o->step(0.7);
          }
          o->set_lr(0.02 / static_cast<double>(step + 1));  // of the next step
          o->zero_grad();
        }
        if (step != 1) expect_same(*got, *want);  // else step 2 finds an update under way
      }
    }
}

// More than one piece, whose ends are nowhere in particular.
TEST_F(Ahead, LargeParametersAreDividedWithoutADifference) {
  for (const bool codes : {false, true}) {
    const std::vector<Shape> shapes{{5'000'001}, {2, 1 << 20}, {7}};
    const NamedTensors here = make_params(DType::f32, false, shapes), there = make_params(DType::f32, true, shapes);
    const AdamWOptions options{.lr = 0.02, .low = {.state_8bit = codes}};
    AdamW want(here, options), got(there, options);
    got.set_home({.where = kAhead, .who = Who::split, .ahead = true});
    EXPECT_LT(got.home().cpu_share, 0);
    EXPECT_FALSE(got.ahead_times().has_value());
    for (uint64_t step = 0; step < 2; ++step)
      for (AdamW* o : {&want, &got}) {
        set_grads(o->params(), DType::f32, step);
        o->step_clipped(10);
        o->zero_grad();
      }
    expect_same(got, want);
    EXPECT_EQ(got.home().cpu_share, 1);  // there is nobody else
    EXPECT_GT(got.ahead_times()->seconds, 0);
  }
}

TEST_F(Ahead, StepReturnsBeforeTheUpdateAndReadersWait) {
  const NamedTensors here = make_params(DType::f32, false, {{500}, {700}}),
                     there = make_params(DType::f32, true, {{500}, {700}});
  AdamW want(here, {.lr = 0.1}), got(there, {.lr = 0.1});
  got.set_home(kHome);
  for (AdamW* o : {&want, &got}) {
    set_grads(o->params(), DType::f32, 1);
    o->step();
  }
  got.finish();
  for (AdamW* o : {&want, &got}) set_grads(o->params(), DType::f32, 2);
  home().hold(true);  // the gradients cannot go home
  const uint32_t version = there[0].second.version();
  got.step();
  got.zero_grad();
  want.step();
  EXPECT_GT(there[0].second.version(), version);
  std::jthread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home().hold(false);
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(bytes(there[1].second), bytes(here[1].second));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
  EXPECT_EQ(bytes(there[0].second), bytes(here[0].second));
}

// What autocast reads in the weights' place is written with them.
TEST_F(Ahead, LowCopiesAreRenewed) {
  const NamedTensors params = make_params(DType::f32, true, {{64, 33}, {48}});
  AdamW o(params, {.lr = 0.1});
  o.set_home({.where = kAhead, .who = Who::cpu, .ahead = true});
  for (const auto& [name, p] : params) autograd_meta(p).low = {to(p.detach(), DType::bf16).to(kAhead), p.version()};
  for (uint64_t step = 0; step < 3; ++step) {
    set_grads(params, DType::f32, step);
    o.step();
    o.zero_grad();
    for (const auto& [name, p] : params) {
      const LowCopy& low = autograd_meta(p).low;
      ASSERT_TRUE(low.is_current(p, DType::bf16));
      EXPECT_EQ(low.tensor.tier(), kAhead);
      EXPECT_EQ(bytes(low.tensor), bytes(to(p.detach(), DType::bf16)));
    }
  }
}

TEST_F(Ahead, GuardedStepsSkipAndDivergeAsOthersDo) {
  const NamedTensors here = make_params(DType::f32, false), there = make_params(DType::f32, true);
  AdamW want(here, {.lr = 0.1}), got(there, {.lr = 0.1});
  got.set_home(kHome);
  LossScaler a, b;
  const double factors[] = {65536, INFINITY, 32768, 1};
  for (uint64_t step = 0; step < 4; ++step) {
    StepReport reports[2];
    for (const bool away : {false, true}) {
      AdamW& o = away ? got : want;
      set_grads(o.params(), DType::f32, step, factors[step]);
      const Tensor loss = full({}, step == 3 ? NAN : 2.0);
      reports[away] =
          StepReport::of(o.step_guarded({.max_norm = 1, .loss = loss, .scaler = away ? &b : &a}).data<double>());
      o.zero_grad();
    }
    EXPECT_EQ(reports[1].outcome, reports[0].outcome);
    EXPECT_EQ(reports[1].norm, reports[0].norm);
    EXPECT_EQ(reports[1].scale, reports[0].scale);
    expect_same(got, want);
  }
}

// A net whose gradients go home as backward() makes them, in several passes, some weights frozen, evaluated between.
TEST_F(Ahead, TrainsToTheSameBitsAndNormsAreNotedInBackward) {
  const auto train = [](bool away, DType dtype, Who who) {
    Samples random(DType::f32, 4);
    NamedTensors params;
    std::vector<HookHandle> hooks;
    for (int i = 0; i < 6; ++i) {
      params.emplace_back(std::to_string(i), leaf_at(random.uniform({40, 40}, -0.2, 0.2, dtype), away));
      if (i == 2) params[2].second.set_requires_grad(false);
      if (away && i != 2)
        hooks.push_back(register_post_accumulate_grad_hook(params.back().second, [](const Tensor& p) {
          if (p.grad().tier() != kAhead) Tensor(p).set_grad(p.grad().to(kAhead));
        }));
    }
    AdamW o(params, {.lr = 0.01, .low = {.master_weights = true}});
    if (away) o.set_home({.where = kAhead, .who = who, .ahead = true});
    const Tensor x = to(random.tensor({16, 40}), dtype);
    const auto loss_of = [&] {
      Tensor h = x;
      for (const auto& [name, w] : params) h = tanh(matmul(h, w)) + h;
      return mean(to(h * h, DType::f32));
    };
    std::vector<double> numbers;
    for (int step = 0; step < 5; ++step) {
      for (int pass = 0; pass < 2; ++pass) {
        const Tensor loss = loss_of();
        loss.backward();
        numbers.push_back(loss.item());
      }
      numbers.push_back(o.step_clipped(step == 1 ? 1e-3 : 1));
      o.zero_grad(step % 2 == 0);
      if (step == 3) {
        const NoGrad guard;
        numbers.push_back(loss_of().item());
      }
    }
    for (HookHandle& h : hooks) h.remove();
    std::vector<std::vector<uint8_t>> all;
    for (const auto& [name, t] : o.state_dict()) all.push_back(bytes(t));
    for (const auto& [name, p] : params) all.push_back(bytes(p));
    return std::pair(numbers, all);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto want = train(false, dtype, Who::device);
    for (const Who who : {Who::device, Who::cpu, Who::split}) EXPECT_EQ(train(true, dtype, who), want);
  }
  // With little near, weights come and go meanwhile.
  const auto want = train(false, DType::f32, Who::cpu);
  const int64_t before = memory::set_near_limit(4 * 8192, Device::cpu(), kAhead);
  EXPECT_EQ(train(true, DType::f32, Who::cpu), want);
  memory::set_near_limit(before, Device::cpu(), kAhead);
}

// Gradients that are home already are not brought back for their norm, unless somebody wrote to them since.
TEST_F(Ahead, NormsAreNotedInBackward) {
  NamedTensors params = make_params(DType::f32, true, {{5000}, {64, 33}, {20000}});
  std::vector<HookHandle> hooks;
  for (const auto& [name, p] : params)
    hooks.push_back(register_post_accumulate_grad_hook(p, [](const Tensor& leaf) {
      if (leaf.grad().tier() != kAhead) Tensor(leaf).set_grad(leaf.grad().to(kAhead));
    }));
  AdamW o(params, {.lr = 0.01});
  o.set_home(kHome);
  const auto backward = [&] {
    Tensor loss = zeros({}, DType::f32);
    for (const auto& [name, p] : params) loss = loss + sum(p * p);
    loss.backward();
    memory::backend(Device::cpu(), kAhead).release_cached();
  };
  for (const bool changed : {false, true}) {
    backward();
    if (changed) {
      const NoGrad guard;
      params[2].second.grad().mul_(2);
      memory::backend(Device::cpu(), kAhead).release_cached();
    }
    TensorList grads;
    for (const auto& [name, p] : params) {
      Tensor copy = leaf_at(p.detach().to(Tier::host), false);
      copy.set_grad(p.grad().to(Tier::host));
      grads.push_back(copy);
    }
    memory::backend(Device::cpu(), kAhead).release_cached();
    const int64_t reads = home().reads();
    EXPECT_EQ(o.step_clipped(1e-3), grad_norm(grads));
    o.finish();
    EXPECT_EQ(home().reads() - reads, changed ? 3 : 0);
    o.zero_grad();
  }
  for (HookHandle& h : hooks) h.remove();
}

// A pass that goes on after backward() sends gradients home at its end: what was noted of them holds no memory.
TEST_F(Ahead, GradientsThatGoHomeAfterBackwardAreNotHeldAndNotBroughtBack) {
  const NamedTensors params = make_params(DType::f32, true, {{1 << 20}, {3 << 20}});
  AdamW o(params, {.lr = 0.01});
  o.set_home(kHome);
  for (const bool noted : {true, false}) {
    Tensor loss = zeros({}, DType::f32);
    for (const auto& [name, p] : params) loss = loss + sum(p * p);
    loss.backward();
    loss = {};
    memory::backend(Device::cpu(), kAhead).release_cached();
    TensorList grads;
    for (const auto& [name, p] : params) {
      Tensor copy = leaf_at(p.detach().to(Tier::host), false);
      copy.set_grad(p.grad().to(Tier::host).clone());
      grads.push_back(copy);
    }
    for (const auto& [name, p] : params) {
      const strata::detail::StorageWatch made(*p.grad().storage());
      Tensor(p).set_grad(p.grad().to(kAhead));
      EXPECT_FALSE(made.alive()) << name;
    }
    if (noted) GradientNotes::take(o);
    memory::backend(Device::cpu(), kAhead).release_cached();
    const int64_t reads = home().reads();
    EXPECT_EQ(o.step_clipped(1e-3), grad_norm(grads));
    o.finish();
    EXPECT_EQ(home().reads() - reads, noted ? 0 : 2);
    o.zero_grad();
  }
}

TEST_F(Ahead, MovesWithItsStateBetweenHomes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const NamedTensors here = make_params(dtype, false), there = make_params(dtype, true);
    const AdamWOptions options{.lr = 0.02, .low = {.master_weights = true}};
    AdamW want(here, options), got(there, options);
    const StateHome homes[] = {kHome,
                               {},
                               {.where = kAhead, .who = Who::cpu, .ahead = true},
                               {.where = kAhead},
                               kHome,
                               {.where = Tier::host, .who = Who::cpu},
                               kHome};
    uint64_t step = 0;
    for (const StateHome& h : homes) {
      got.set_home(h);
      EXPECT_EQ(got.home().ahead, h.ahead);
      ++step;
      for (AdamW* o : {&want, &got}) {
        set_grads(o->params(), dtype, step);
        o->step();
        o->zero_grad();
      }
      if (step % 2 == 0) expect_same(got, want);
    }
    const NamedTensors again = make_params(dtype, true);
    AdamW second(again, options);
    second.set_home(kHome);
    second.load_state_dict(got.state_dict());
    for (size_t i = 0; i < again.size(); ++i) {
      const NoGrad guard;
      again[i].second.detach().copy_(there[i].second);
    }
    for (AdamW* o : {&want, &second}) {
      set_grads(o->params(), dtype, 99);
      o->step();
    }
    expect_same(second, want);
  }
}

// What cannot wait is updated by step(): weights that are held, elsewhere, or have their gradients elsewhere.
TEST_F(Ahead, WhatIsNotAtHomeIsUpdatedAtOnce) {
  NamedTensors here = make_params(DType::f32, false, {{50}, {60}, {70}, {80}}),
               there = make_params(DType::f32, true, {{50}, {60}, {70}, {80}});
  there[1].second = leaf_at(here[1].second, false);
  AdamW want(here, {.lr = 0.1}), got(there, {.lr = 0.1});
  got.set_home(kHome);
  for (uint64_t step = 0; step < 3; ++step) {
    for (AdamW* o : {&want, &got}) {
      set_grads(o->params(), DType::f32, step);
      if (o == &got && step != 1) {
        Tensor p = there[2].second;
        p.set_grad(p.grad().to(Tier::host));
      }
      std::optional<Pin> held;
      if (o == &got && step < 2) held.emplace(there[3].second, Access::read);
      o->step();
    }
    expect_same(got, want);
  }
}

TEST_F(Ahead, AFailureIsToldToReadersAndByFinish) {
  const NamedTensors params = make_params(DType::f32, true, {{500}, {700}, {900}});
  AdamW o(params, {.lr = 0.1});
  o.set_home(kHome);
  set_grads(params, DType::f32, 1);
  o.step();
  o.finish();
  set_grads(params, DType::f32, 2);
  home().fail(0, 1);  // the first gradient's way home
  o.step();
  EXPECT_THROW(bytes(params[2].second), IoError);
  EXPECT_THROW(o.finish(), IoError);
  EXPECT_NO_THROW(o.finish());
  for (const auto& [name, p] : params) {
    try {
      bytes(p);
    } catch (const IoError&) {  // of that step, told once
    }
    EXPECT_NO_THROW(bytes(p));
  }
  o.zero_grad();
  set_grads(params, DType::f32, 3);
  o.step();
  EXPECT_NO_THROW(o.finish());
  // An optimizer that ends waits for its update.
  set_grads(params, DType::f32, 4);
  o.step();
}

TEST_F(Ahead, RefusesWhatCannotBe) {
  const NamedTensors params = make_params(DType::f32, true, {{50, 2}});
  AdamW o(params);
  EXPECT_THROW(o.set_home({.where = kAhead, .who = Who::cpu, .gradients_leave = true, .ahead = true}), ValueError);
  EXPECT_THROW(o.set_home({.where = Tier::host, .who = Who::cpu, .delayed = true, .ahead = true}), ValueError);
  Muon muon(params);
  muon.set_home(kHome);
  EXPECT_FALSE(muon.home().ahead);
}

TEST_F(Ahead, ARecordedStepShowsItsUpdates) {
  const NamedTensors params = make_params(DType::f32, true);
  AdamW o(params, {.lr = 0.1});
  o.set_home(kHome);
  set_grads(params, DType::f32, 1);
  const Recording r = record([&] { o.step(); });
  int64_t updates = 0;
  for (const RecordedCall& c : r.calls) updates += c.op->name() == "optimizer_update";
  EXPECT_EQ(updates, 6);  // those of one number and of none together
}

// Whoever stands behind the others in the list may be wanted first.
TEST_F(Ahead, UpdatesComeInTheOrderInWhichForwardWantsThem) {
  const NamedTensors params =
      make_params(DType::f32, true, {{8, 3}, {5, 6}, {6, 8}});  // forward: the second, the third, the first
  AdamW o(params, {.lr = 0.1});
  o.set_home(kHome);
  sum(matmul(matmul(matmul(ones({2, 5}), params[1].second), params[2].second), params[0].second)).backward();
  for (const auto& [name, p] : params) Tensor(p).set_grad(p.grad().to(kAhead));
  const Recording r = record([&] { o.step_clipped(1); });
  std::vector<Shape> order;
  for (const RecordedCall& c : r.calls)
    if (c.op->name() == "optimizer_update") order.push_back(r.values[static_cast<size_t>(c.targets.at(0).at)].shape);
  EXPECT_EQ(order, (std::vector<Shape>{{5, 6}, {6, 8}, {8, 3}}));
}

}  // namespace
}  // namespace strata::optim
