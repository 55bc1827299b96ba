// Homes of an optimizer's state, over every record: the bits of a step whose state stays.
#include "strata/optim/home.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/memory/second_heap_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {
using memory::kSecond;
using memory::SecondHeap;
using Who = StateHome::Who;

const std::vector<Shape> kShapes{{37}, {64, 33}, {}, {0}, {3, 17, 5}, {4097}, {9, 21}};

std::vector<uint8_t> bytes(const Tensor& t) {
  const Pin pin(t, Access::read);
  if (t.nbytes() == 0) return {};
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

NamedTensors make_params(DType dtype) {
  NamedTensors all;
  Samples random(DType::f32, 3);
  for (size_t i = 0; i < kShapes.size(); ++i)
    all.emplace_back("p" + std::to_string(i), leaf(random.uniform(kShapes[i], -1, 1, dtype)));
  return all;
}
void set_grads(const NamedTensors& params, DType dtype, uint64_t seed, double factor = 1) {
  Samples random(DType::f32, seed);
  for (const auto& [name, p] : params) {
    Tensor t = p;
    t.set_grad(to(random.tensor(p.shape()) * Scalar(factor), dtype));
  }
}
void expect_same(const Optimizer& got, const Optimizer& want) {
  const NamedTensors a = got.params(), b = want.params();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(bytes(a[i].second), bytes(b[i].second)) << a[i].first;
  const StateDict s = got.state_dict(), t = want.state_dict();
  ASSERT_EQ(s.size(), t.size());
  for (const auto& [key, value] : t) {
    ASSERT_TRUE(s.contains(key)) << key;
    ASSERT_EQ(bytes(s.at(key)), bytes(value)) << key;
  }
}

struct Case {
  std::string name;
  const OptimizerRecord* record;
  OptionValues options;
  DType dtype, grad;
};
// Every record, with f32 and with each treatment of bf16; and switches that make another rule.
std::vector<Case> cases() {
  const OptionValues master{{"master_weights", true}},
      stochastic{{"stochastic_rounding", true}, {"rounding_seed", int64_t{7}}},
      low{{"stochastic_rounding", true}, {"low_state", true}};
  std::vector<Case> all;
  for (const OptimizerRecord* r : optimizer_records()) {
    all.push_back({cat(r->name, " f32"), r, {}, DType::f32, DType::f32});
    all.push_back({cat(r->name, " f64"), r, {}, DType::f64, DType::f64});
    all.push_back({cat(r->name, " bf16 master"), r, master, DType::bf16, DType::bf16});
    all.push_back({cat(r->name, " f16 master"), r, master, DType::f16, DType::f32});
    all.push_back({cat(r->name, " bf16 stochastic"), r, stochastic, DType::bf16, DType::f32});
    all.push_back({cat(r->name, " bf16 low state"), r, low, DType::bf16, DType::bf16});
    for (const char* option : {"amsgrad", "nesterov", "centered", "use_adamw"})
      if (r->option(option)) {
        OptionValues with{{option, true}};
        if (r->name == "sgd") with["momentum"] = 0.9;
        all.push_back({cat(r->name, ' ', option), r, with, DType::f32, DType::bf16});
      }
  }
  return all;
}
std::unique_ptr<Optimizer> make(const Case& c, const NamedTensors& params) {
  return make_optimizer(c.record->name, {{params, c.options}});
}
const std::vector<std::pair<const char*, StateHome>>& homes() {
  static const std::vector<std::pair<const char*, StateHome>> all{
      {"second heap", {.where = kSecond, .group_bytes = 9000}},
      {"second heap, one at a time", {.where = kSecond, .group_bytes = 1}},
      {"cpu", {.where = Tier::host, .who = Who::cpu, .group_bytes = 20000}},
      {"cpu, leaving", {.where = Tier::host, .who = Who::cpu, .group_bytes = 1, .gradients_leave = true}},
      {"cpu, second heap", {.where = kSecond, .who = Who::cpu}},
      {"split", {.where = kSecond, .who = Who::split, .cpu_share = 0.5, .group_bytes = 9000}},
      {"split, leaving",
       {.where = Tier(), .who = Who::split, .cpu_share = 0.3, .group_bytes = 1, .gradients_leave = true}},
  };
  return all;
}

class Home : public ::testing::Test {
 protected:
  void SetUp() override { wrong_ = SecondHeap::get().wrong_reads; }
  void TearDown() override {
    EXPECT_EQ(SecondHeap::get().pinned, 0);
    EXPECT_EQ(SecondHeap::get().wrong_reads, wrong_);
    EXPECT_EQ(SecondHeap::get().stats(Device::cpu()).live_total, 0);
  }
  int64_t wrong_ = 0;
};

TEST_F(Home, EveryOptimizerStepsToTheSameBits) {
  for (const Case& c : cases())
    for (const auto& [name, home] : homes()) {
      SCOPED_TRACE(cat(c.name, ", ", name));
      const NamedTensors here = make_params(c.dtype), there = make_params(c.dtype);
      const auto want = make(c, here), got = make(c, there);
      got->set_home(home);
      for (uint64_t step = 0; step < 4; ++step) {
        for (Optimizer* o : {want.get(), got.get()}) {
          set_grads(o->params(), c.grad, step, step == 2 ? INFINITY : 1);
          if (step == 0) o->set_lr(0.02);
          if (step == 1 || step == 2) {
            const double norm = o->step_clipped(0.5);
            EXPECT_EQ(std::isfinite(norm), step == 1);
          } else {
            o->step(0.7);
          }
          o->zero_grad();
        }
        expect_same(*got, *want);
      }
    }
}

TEST_F(Home, StateIsOnItsTierAndGroupsAreHeldOneByOne) {
  // What is held during an update, seen from within.
  struct Watching final : OptimizerOf<AdamWOptions> {
    using OptimizerOf::OptimizerOf;
    std::vector<int64_t> held;
    void update(const std::vector<Param*>& active, double grad_scale) override {
      held.push_back(SecondHeap::get().pinned);
      OptimizerOf::update(active, grad_scale);
    }
  };
  NamedTensors params;
  for (int i = 0; i < 6; ++i) params.emplace_back(std::to_string(i), start({1000}));
  Watching o(params);
  o.set_home({.where = kSecond, .group_bytes = 2 * 8008});
  set_grads(params, DType::f32, 1);
  o.step();
  const int64_t prefetches = SecondHeap::get().prefetches, hits = SecondHeap::get().hits;
  o.step();
  EXPECT_EQ(o.held, std::vector<int64_t>(6, 4));  // two parameters' moments; their counts are plain numbers
  EXPECT_EQ(SecondHeap::get().prefetches - prefetches, 8);
  EXPECT_EQ(SecondHeap::get().hits - hits, 8);  // all but the first group's
  for (const auto& [key, t] : o.state_dict())
    EXPECT_EQ(t.tier(), key.ends_with(".step") ? memory::backend(Device::cpu()).tier : kSecond) << key;
  EXPECT_EQ(o.home().where, kSecond);
  EXPECT_EQ(o.home().cpu_share, 0);
  EXPECT_FALSE(o.capturable());
  o.set_home({});
  EXPECT_TRUE(o.capturable());
  EXPECT_EQ(SecondHeap::get().stats(Device::cpu()).live_total, 0);
}

// Ten times as much state as may be near.
TEST_F(Home, OnDiskNoMoreIsNearThanTheBound) {
  NamedTensors here, there;
  for (int i = 0; i < 24; ++i) {
    here.emplace_back(std::to_string(i), start({20'000}));
    there.emplace_back(std::to_string(i), start({20'000}));
  }
  constexpr int64_t kLimit = 768 << 10;
  const int64_t before = memory::set_near_limit(kLimit, Device::cpu(), memory::kDisk);
  const memory::NearStats at_first = memory::near_stats(Device::cpu(), memory::kDisk);
  {
    AdamW want(here, {.lr = 0.02}), got(there, {.lr = 0.02});
    got.set_home({.where = memory::kDisk, .group_bytes = 330'000});
    for (uint64_t step = 0; step < 4; ++step)
      for (AdamW* o : {&want, &got}) {
        set_grads(o->params(), DType::f32, step);
        o->step_clipped(10);
      }
    const memory::NearStats s = memory::near_stats(Device::cpu(), memory::kDisk);
    EXPECT_LE(s.peak, kLimit);
    EXPECT_EQ(s.pinned, 0);
    EXPECT_GT(s.prefetches - at_first.prefetches, 0);
    EXPECT_GT(s.bytes_in - at_first.bytes_in, 2 * 2'500'000);
    EXPECT_GT(s.bytes_out - at_first.bytes_out, 2 * 2'500'000);
    expect_same(got, want);
  }
  memory::set_near_limit(before, Device::cpu(), memory::kDisk);
}

TEST_F(Home, MovesWithItsStateAndGradients) {
  for (const Case& c : cases()) {
    if (c.dtype != DType::bf16 && c.dtype != DType::f32) continue;
    SCOPED_TRACE(c.name);
    const NamedTensors here = make_params(c.dtype), there = make_params(c.dtype);
    const auto want = make(c, here), got = make(c, there);
    uint64_t step = 0;
    for (const auto& [name, home] : homes()) {
      for (const bool back : {false, true}) {
        SCOPED_TRACE(cat(name, ' ', back));
        got->set_home(back ? StateHome{} : home);
        ++step;
        for (Optimizer* o : {want.get(), got.get()}) {
          set_grads(o->params(), c.grad, step);
          o->step();
          o->zero_grad();
        }
        expect_same(*got, *want);
      }
    }
  }
}

TEST_F(Home, StatesOfOneHomeGoOnInAnother) {
  for (const Case& c : cases()) {
    if (c.dtype != DType::bf16 && c.dtype != DType::f32) continue;
    for (const auto& [from, first_home] : homes())
      for (const auto& [name, second_home] : homes()) {
        SCOPED_TRACE(cat(c.name, ", from ", from, " to ", name));
        const NamedTensors here = make_params(c.dtype), there = make_params(c.dtype);
        const auto want = make(c, here), first = make(c, there);
        first->set_home(first_home);
        const auto run = [&](Optimizer& o, uint64_t step) {
          set_grads(o.params(), c.grad, step);
          o.step();
          o.zero_grad();
        };
        for (uint64_t step = 0; step < 2; ++step) {
          run(*want, step);
          run(*first, step);
        }
        NamedTensors again;
        for (const auto& [key, p] : there) again.emplace_back(key, leaf(p));
        const auto second = make(c, again);
        second->set_home(second_home);
        StateDict state = first->state_dict();
        if (from == name) {
          second->take_state_dict(std::move(state));
        } else {
          second->load_state_dict(state);
        }
        expect_same(*second, *want);
        run(*want, 2);
        run(*second, 2);
        expect_same(*second, *want);
      }
  }
}

TEST_F(Home, GradientsLeaveInBackwardAndAddUp) {
  const auto train = [](const StateHome& home, DType dtype) {
    const NamedTensors params = make_params(dtype);
    AdamW o(params, {.lr = 0.02, .low = {.master_weights = true}});
    o.set_home(home);
    Samples random(DType::f32, 5);
    std::vector<double> norms;
    for (int step = 0; step < 3; ++step) {
      for (int part = 0; part < 3; ++part) {
        Tensor loss = zeros({}, DType::f32);
        for (const auto& [name, p] : params) loss = loss + sum(to(p * p, DType::f32) * random.tensor(p.shape()));
        loss.backward();
        for (const auto& [name, p] : params) {
          EXPECT_EQ(p.grad().defined(), !home.gradients_leave) << name;
        }
      }
      norms.push_back(o.step_clipped(1.5));
      if (step == 1) o.step();  // once more by the same gradients
      o.zero_grad(step == 2);
    }
    std::vector<std::vector<uint8_t>> all;
    for (const auto& [name, p] : params) all.push_back(bytes(p));
    for (const auto& [name, t] : o.state_dict()) all.push_back(bytes(t));
    return std::pair(norms, all);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto want = train({}, dtype);
    EXPECT_EQ(train({.where = Tier::host, .who = Who::cpu}, dtype), want);
    EXPECT_EQ(train({.where = Tier::host, .who = Who::cpu, .gradients_leave = true}, dtype), want);
  }
}

// The parameters lack the last update until the next step or finish(); gradients are of such parameters.
TEST_F(Home, ADelayedUpdateIsOneStepLate) {
  for (const bool leave : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(cat(dtype, " leaving ", leave));
      const AdamWOptions options{.lr = 0.02, .low = {.master_weights = true}};
      const NamedTensors late = make_params(dtype), exact = make_params(dtype), stale = make_params(dtype);
      AdamW got(late, options), want(exact, options);
      got.set_home({.who = Who::cpu, .group_bytes = 9000, .gradients_leave = leave, .delayed = true});
      const auto backward = [](const NamedTensors& params) {
        Samples random(DType::f32, 5);
        Tensor loss = zeros({}, DType::f32);
        for (const auto& [name, p] : params) loss = loss + sum(to(p * p, DType::f32) * random.tensor(p.shape()));
        loss.backward();
      };
      for (int step = 0; step < 5; ++step) {
        got.set_lr(0.02 + 0.01 * step);
        want.set_lr(0.02 + 0.01 * step);
        for (size_t i = 0; i < late.size(); ++i) EXPECT_EQ(bytes(late[i].second), bytes(stale[i].second)) << step;
        backward(late);
        backward(stale);
        for (size_t i = 0; i < stale.size(); ++i) {
          Tensor from = stale[i].second, to = exact[i].second;
          to.set_grad(from.grad());
          from.set_grad({});
          const NoGrad guard;
          from.detach().copy_(to);
        }
        EXPECT_EQ(got.step_clipped(100), want.step_clipped(100));
        got.zero_grad(step % 2 == 0);
        want.zero_grad();
      }
      got.finish();
      expect_same(got, want);
      got.finish();  // nothing is under way
      // Another home, and other state, find the update done.
      for (Optimizer* o : std::vector<Optimizer*>{&got, &want}) {
        set_grads(o->params(), DType::f32, 3);
        o->step();
      }
      got.set_home({});
      expect_same(got, want);
    }
}

TEST_F(Home, GradientsOnTheHostComeBackWithTheHome) {
  Tensor p = start({50});
  SGD o(TensorList{p}, {.lr = 1});
  o.set_home({.who = Who::cpu, .gradients_leave = true});
  sum(p * 2.0).backward();
  EXPECT_FALSE(p.grad().defined());
  o.set_home({});
  ASSERT_TRUE(p.grad().defined());
  sum(p).backward();  // no hook takes it away any more
  EXPECT_EQ(values(p.grad()), Doubles(50, 3.0));
}

TEST_F(Home, AParameterThatOthersWroteCounts) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [name, home] : homes()) {
      SCOPED_TRACE(cat(dtype, ' ', name));
      const NamedTensors here = make_params(dtype), there = make_params(dtype);
      AdamW want(here, {.lr = 0.1, .low = {.master_weights = true}}),
          got(there, {.lr = 0.1, .low = {.master_weights = true}});
      got.set_home(home);
      for (uint64_t step = 0; step < 3; ++step)
        for (AdamW* o : {&want, &got}) {
          const NamedTensors params = o->params();
          set_grads(params, DType::f32, step);
          o->step();
          o->zero_grad();
          const NoGrad guard;
          Tensor changed = params[1].second;
          changed.detach().mul_(0.5);
        }
      expect_same(got, want);
    }
}

TEST_F(Home, GuardedStepsSkipAndDivergeAsOthersDo) {
  for (const auto& [name, home] : homes()) {
    SCOPED_TRACE(name);
    const NamedTensors here = make_params(DType::f32), there = make_params(DType::f32);
    AdamW want(here, {.lr = 0.1}), got(there, {.lr = 0.1});
    got.set_home(home);
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
      EXPECT_EQ(reports[1].outcome, step == 1   ? StepReport::skipped
                                    : step == 3 ? StepReport::diverged
                                                : StepReport::updated);
      EXPECT_EQ(reports[1].scale, reports[0].scale);
      expect_same(got, want);
    }
  }
}

TEST_F(Home, FailuresAreThrownAndLeaveNothingHeld) {
  const NamedTensors params = make_params(DType::f32);
  AdamW o(params, {.lr = 0.1});
  o.set_home({.where = kSecond, .group_bytes = 1});
  set_grads(params, DType::f32, 1);
  o.step();
  SecondHeap& heap = SecondHeap::get();
  heap.fails = true;
  const auto before = bytes(params[0].second);
  EXPECT_THROW(o.step(), MemoryError);
  heap.fails = false;
  EXPECT_EQ(heap.pinned, 0);
  EXPECT_EQ(bytes(params[0].second), before);
  o.step();
  EXPECT_NE(bytes(params[0].second), before);
  // No room: the home cannot be had, and what there was goes on.
  AdamW other(make_params(DType::f32), {.lr = 0.1});
  set_grads(other.params(), DType::f32, 1);
  other.step();
  heap.set_limit(Device::cpu(), heap.stats(Device::cpu()).live_total + 1000);
  EXPECT_THROW(other.set_home({.where = kSecond}), MemoryError);
  heap.set_limit(Device::cpu(), 0);
  EXPECT_EQ(other.home().where, Tier());
  other.step();
  EXPECT_EQ(other.state_dict().at("p0.step").item<int64_t>(), 2);
}

TEST_F(Home, RefusesWhatCannotBe) {
  Tensor p = start();
  AdamW o(TensorList{p});
  EXPECT_THROW(o.set_home({.where = Tier::host, .group_bytes = 0}), ValueError);
  EXPECT_THROW(o.set_home({.who = Who::split, .cpu_share = 1.5}), ValueError);
  EXPECT_THROW(o.set_home({.who = Who::split, .cpu_share = NAN}), ValueError);
  EXPECT_THROW(o.set_home({.where = Tier::host, .gradients_leave = true}), ValueError);
  EXPECT_THROW(o.set_home({.where = Tier::named("tier of no backend")}), DeviceError);
  EXPECT_THROW(o.set_home({.where = Tier::named("tier of no backend"), .who = Who::cpu}), DeviceError);
  EXPECT_THROW(o.set_home({.where = Tier::host, .delayed = true}), ValueError);
  EXPECT_THROW(o.set_home({.where = kSecond, .who = Who::cpu, .delayed = true}), ValueError);
  Muon muon(TensorList{p});
  EXPECT_THROW(muon.set_home({.who = Who::cpu, .delayed = true}), ValueError);
  SparseAdam sparse(TensorList{p});
  EXPECT_THROW(sparse.set_home({.who = Who::cpu, .delayed = true}), ValueError);
  HostBound own(TensorList{p});
  EXPECT_THROW(own.set_home({.who = Who::split}), ValueError);  // nothing to measure it by
  own.set_home({.who = Who::split, .cpu_share = 0.5});
  EXPECT_EQ(own.home().who, Who::split);
  EXPECT_EQ(name_of(Who::split), "split");
}

TEST_F(Home, OfMetaParametersIsOnlyCounted) {
  DeviceScope dry(Device::meta());
  Tensor p = empty({1 << 20, 1 << 10});
  p.set_requires_grad();
  AdamW o(TensorList{p});
  o.set_home({.where = Tier::host, .who = Who::cpu});
  p.set_grad(empty({1 << 20, 1 << 10}));
  o.step();
  EXPECT_TRUE(o.state_dict().at("0.exp_avg").is_meta());
}

TEST_F(Home, ARecordedStepShowsItsGroups) {
  const NamedTensors params = make_params(DType::f32);
  AdamW o(params, {.lr = 0.1});
  o.set_home({.where = kSecond, .group_bytes = 1});
  set_grads(params, DType::f32, 1);
  const Recording r = record([&] { o.step(); });
  int64_t updates = 0;
  for (const RecordedCall& c : r.calls) updates += c.op->name() == "optimizer_update";
  EXPECT_EQ(updates, 7);
}

TEST(HomeShare, IsWhereTheSlowestIsFastest) {
  // Alone the device needs 2 s for a unit of state each way, the CPU 1: together two thirds of a second.
  const HomeRates bus{.to_host = 1, .to_device = 1, .cpu = 1, .device = 100};
  const HomeBytes bytes{.gradient = 0, .parameter = 0, .state = 2};
  const double c = best_cpu_share(bus, bytes);
  EXPECT_NEAR(c, 2. / 3, 1. / 64);
  EXPECT_NEAR(split_seconds(bus, bytes, c), 2. / 3, 0.03);
  EXPECT_EQ(split_seconds(bus, bytes, 0), 2);
  EXPECT_EQ(split_seconds(bus, bytes, 1), 1);
  // A CPU that is slower than the bus gets nothing where that does not help, all of it where the bus is what lacks.
  EXPECT_EQ(best_cpu_share({.to_host = 1e3, .to_device = 1e3, .cpu = 1e-3, .device = 1e3}, bytes), 0);
  EXPECT_EQ(best_cpu_share({.to_host = 1e-3, .to_device = 1e-3, .cpu = 1e6, .device = 1}, bytes), 1);
}

TEST_F(Home, SplitByMeasuredRates) {
  const NamedTensors params = make_params(DType::f32);
  AdamW o(params);
  const HomeRates r = measure_home_rates(o, Device::cpu(), DType::f32);
  for (const double rate : {r.to_host, r.to_device, r.cpu, r.device}) {
    EXPECT_GT(rate, 1e5);
    EXPECT_LT(rate, 1e13);
  }
  o.set_home({.who = Who::split});
  EXPECT_GE(o.home().cpu_share, 0);
  EXPECT_LE(o.home().cpu_share, 1);
  set_grads(params, DType::f32, 1);
  o.step();
}

}  // namespace
}  // namespace strata::optim
