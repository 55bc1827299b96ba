// Homes of an optimizer's state on a CUDA device: beside the optimizer that keeps its state there, and beside the
// CPU's.

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {
using Who = StateHome::Who;

const std::vector<Shape> kShapes{{37}, {64, 128}, {5000}, {}, {3, 17, 33}, {0}, {40, 9}, {4096}, {8193}, {300, 700}};

std::vector<uint8_t> bytes(const Tensor& t) {
  const Tensor here = contiguous(t.detach()).to(Device::cpu());
  if (here.nbytes() == 0) return {};
  const auto* p = static_cast<const uint8_t*>(here.raw_data());
  return {p, p + here.nbytes()};
}
NamedTensors params_on(Device device, DType dtype) {
  NamedTensors all;
  Samples random(DType::f32, 3);
  for (size_t i = 0; i < kShapes.size(); ++i) {
    Tensor p = random.uniform(kShapes[i], -1, 1, dtype).to(device);
    p.set_requires_grad();
    all.emplace_back("p" + std::to_string(i), p);
  }
  return all;
}
void set_grads(const Optimizer& o, DType dtype, uint64_t seed, double factor = 1) {
  Samples random(DType::f32, seed);
  for (const auto& [name, p] : o.params()) {
    Tensor t = p;
    t.set_grad(to(random.tensor(p.shape()) * Scalar(factor), dtype).to(p.device()));
  }
}
// How many of the parameters' and the state's elements differ in a bit.
int64_t differing(const Optimizer& got, const Optimizer& want, int64_t& all) {
  int64_t differ = 0;
  const auto compare = [&](const Tensor& a, const Tensor& b) {
    const auto x = bytes(a), y = bytes(b);
    ASSERT_EQ(x.size(), y.size());
    const size_t width = static_cast<size_t>(size_of(a.dtype()));
    for (size_t i = 0; i + width <= x.size(); i += width) differ += std::memcmp(&x[i], &y[i], width) != 0;
    all += a.numel();
  };
  const NamedTensors a = got.params(), b = want.params();
  for (size_t i = 0; i < a.size(); ++i) compare(a[i].second, b[i].second);
  const StateDict s = got.state_dict();
  for (const auto& [key, value] : want.state_dict()) compare(s.at(key), value);
  return differ;
}
void expect_same(const Optimizer& got, const Optimizer& want) {
  int64_t all = 0;
  EXPECT_EQ(differing(got, want, all), 0) << "of " << all;
  EXPECT_GT(all, 0);
}

struct Case {
  std::string name;
  const OptimizerRecord* record;
  OptionValues options;
  DType dtype, grad;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const OptimizerRecord* r : optimizer_records()) {
    all.push_back({cat(r->name, " f32"), r, {}, DType::f32, DType::f32});
    all.push_back({cat(r->name, " bf16 master"), r, {{"master_weights", true}}, DType::bf16, DType::bf16});
    all.push_back({cat(r->name, " bf16 stochastic"),
                   r,
                   {{"stochastic_rounding", true}, {"low_state", true}},
                   DType::bf16,
                   DType::bf16});
    if (!r->option("state_8bit")) continue;
    all.push_back({cat(r->name, " bf16, 8 bits"),
                   r,
                   {{r->name == "adafactor" ? "master_weights" : "compensated_weights", true},
                    {"state_8bit", true},
                    {"min_8bit_size", int64_t{0}}},
                   DType::bf16,
                   DType::bf16});
  }
  return all;
}
void run(Optimizer& o, DType grad) {
  LossScaler scaler(o.params()[0].second.device(), {.init = 8});
  for (uint64_t step = 0; step < 5; ++step) {
    set_grads(o, grad, step, step == 2 ? INFINITY : step == 3 ? 8 : 1);
    if (step == 0) o.set_lr(0.02);
    if (step == 1) {
      o.step_clipped(1e9);
    } else if (step == 2) {
      EXPECT_FALSE(std::isfinite(o.step_clipped(1)));
    } else if (step == 3) {
      o.step_guarded({.max_norm = 1e9, .scaler = &scaler});
    } else {
      o.step(0.5);
    }
    o.zero_grad();
  }
}

class CudaHome : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static bool streams() { return memory::find_backend(DeviceType::cuda, Tier::pinned) != nullptr; }
};

TEST_F(CudaHome, UpdatedByTheCpuAsOnTheCpu) {
  for (const Case& c : cases())
    for (const bool leave : {false, true}) {
      SCOPED_TRACE(cat(c.name, " leaving ", leave));
      const auto want = make_optimizer(c.record->name, {{params_on(Device::cpu(), c.dtype), c.options}}),
                 got = make_optimizer(c.record->name, {{params_on(Device::cuda(), c.dtype), c.options}});
      got->set_home({.where = Tier::host, .who = Who::cpu, .group_bytes = 40000, .gradients_leave = leave});
      run(*want, c.grad);
      run(*got, c.grad);
      expect_same(*got, *want);
    }
}

TEST_F(CudaHome, StreamedAsResident) {
  if (!streams()) GTEST_SKIP() << "no page-locked home for a card's tensors in this build";
  for (const Case& c : cases())
    for (const int64_t group : {int64_t{1}, int64_t{100'000}}) {
      SCOPED_TRACE(cat(c.name, " groups of ", group));
      const auto want = make_optimizer(c.record->name, {{params_on(Device::cuda(), c.dtype), c.options}}),
                 got = make_optimizer(c.record->name, {{params_on(Device::cuda(), c.dtype), c.options}});
      got->set_home({.where = Tier::host, .group_bytes = group});
      run(*want, c.grad);
      run(*got, c.grad);
      expect_same(*got, *want);
      for (const auto& [key, t] : got->state_dict()) EXPECT_TRUE(t.dim() == 0 || t.tier() == Tier::pinned) << key;
    }
}

// What the records promise of the CPU's kernels and the card's: the same bits, where constants follow from the count by
// products alone and no sum runs over elements.
TEST_F(CudaHome, CpuAndCardGiveTheSameBits) {
  for (const Case& c : cases()) {
    const auto here = make_optimizer(c.record->name, {{params_on(Device::cpu(), c.dtype), c.options}}),
               there = make_optimizer(c.record->name, {{params_on(Device::cuda(), c.dtype), c.options}});
    for (uint64_t step = 0; step < 5; ++step)
      for (Optimizer* o : {here.get(), there.get()}) {
        set_grads(*o, c.grad, step);
        o->step(0.5);
      }
    int64_t all = 0;
    const int64_t differ = differing(*there, *here, all);
    std::printf("  %-28s %lld of %lld elements differ\n", c.name.c_str(), static_cast<long long>(differ),
                static_cast<long long>(all));
    const bool promised = !c.options.contains("state_8bit") && c.record->rule && c.record->same_bits;
    EXPECT_TRUE(differ == 0 || !promised) << c.name;
  }
}

TEST_F(CudaHome, SplitIsEitherOfBoth) {
  for (const bool leave : {false, true}) {
    const auto make = [](Device device) {
      return std::make_unique<AdamW>(params_on(device, DType::bf16),
                                     AdamWOptions{.lr = 0.02, .low = {.master_weights = true}});
    };
    const auto want = make(Device::cuda()), got = make(Device::cuda());
    got->set_home({.who = Who::split, .cpu_share = 0.4, .group_bytes = 1, .gradients_leave = leave});
    for (Optimizer* o : {want.get(), got.get()})
      for (uint64_t step = 0; step < 4; ++step) {
        set_grads(*o, DType::bf16, step);
        o->step();
        o->zero_grad();
      }
    expect_same(*got, *want);
    int64_t on_host = 0, on_card = 0;
    for (const auto& [key, t] : got->state_dict()) (t.device().is_cpu() ? on_host : on_card) += t.numel();
    EXPECT_GT(on_host, 0);
    EXPECT_GT(on_card, 0);
  }
}

// A network's training, with gradients that leave during backward and the copy for autocast.
TEST_F(CudaHome, TrainingWithGradientsThatLeave) {
  const auto train = [](Device device, const StateHome& home, DType dtype, bool autocast) {
    Samples random(DType::f32, 9);
    NamedTensors params;
    for (int i = 0; i < 4; ++i) {
      Tensor w = random.uniform({64, 64}, -0.2, 0.2, dtype).to(device);
      w.set_requires_grad();
      params.emplace_back(std::to_string(i), w);
    }
    AdamW o(params, {.lr = 0.01, .low = {.master_weights = true}});
    o.set_home(home);
    const Tensor x = random.tensor({32, 64}).to(dtype).to(device);
    for (int step = 0; step < 4; ++step) {
      for (int part = 0; part < 2; ++part) {
        Tensor loss;
        {
          AutocastScope scope(DType::bf16, autocast);
          Tensor h = x;
          for (const auto& [name, w] : params) h = tanh(matmul(h, w));
          loss = mean(to(h * h, DType::f32));
        }
        loss.backward();
        for (const auto& [name, w] : params) EXPECT_EQ(w.grad().defined(), !home.gradients_leave);
      }
      o.step_guarded({.max_norm = 1e9});
      o.zero_grad();
      if (autocast && dtype == DType::f32)
        for (const auto& [name, w] : params) {
          const LowCopy& low = autograd_meta(w).low;
          EXPECT_TRUE(low.is_current(w, DType::bf16)) << name;
          EXPECT_EQ(bytes(low.tensor), bytes(to(w.detach(), DType::bf16)));
        }
    }
    std::vector<std::vector<uint8_t>> all;
    for (const auto& [name, w] : params) all.push_back(bytes(w));
    return all;
  };
  for (const auto& [dtype, autocast] : {std::pair(DType::f32, false), {DType::f32, true}, {DType::bf16, false}}) {
    SCOPED_TRACE(cat(dtype, " autocast ", autocast));
    const auto want = train(Device::cuda(), {}, dtype, autocast);
    EXPECT_EQ(train(Device::cuda(), {.who = Who::cpu}, dtype, autocast), want);
    EXPECT_EQ(train(Device::cuda(), {.who = Who::cpu, .gradients_leave = true}, dtype, autocast), want);
    if (!streams()) continue;
    EXPECT_EQ(train(Device::cuda(), {.where = Tier::host}, dtype, autocast), want);
  }
}

TEST_F(CudaHome, GradientsThatLeaveFreeTheCard) {
  constexpr int64_t n = 4 << 20;
  NamedTensors params;
  for (int i = 0; i < 8; ++i) {
    Tensor w = full({n}, 0.5, DType::bf16).to(Device::cuda());
    w.set_requires_grad();
    params.emplace_back(std::to_string(i), w);
  }
  AdamW o(params, {.low = {.master_weights = true}});
  o.set_home({.who = Who::cpu, .gradients_leave = true});
  const int64_t before = memory::stats(DeviceType::cuda).live_total;
  for (int step = 0; step < 3; ++step) {
    Tensor loss = zeros({}).to(Device::cuda());
    for (const auto& [name, w] : params) loss = loss + sum(w * w);
    loss.backward();
    loss = {};
    // Neither gradients nor state are on the card.
    EXPECT_LT(memory::stats(DeviceType::cuda).live_total - before, n);
    o.step();
    o.zero_grad();
  }
  for (const auto& [key, t] : o.state_dict()) EXPECT_TRUE(t.device().is_cpu()) << key;
}

// ZeRO-Offload (Ren et al., 2021): states beyond the card's limit, the losses of Adam on the card. Deep Optimizer
// States (Maurya et al., 2024): interleaved on both, equal to all on the CPU.
TEST_F(CudaHome, ZeroOffloadAndDeepOptimizerStates) {
  const auto train = [](const StateHome& home) {
    Samples random(DType::f32, 4);
    NamedTensors params;
    for (int i = 0; i < 8; ++i) {
      Tensor w = random.uniform({1024, 1024}, -0.03, 0.03, DType::bf16).to(Device::cuda());
      w.set_requires_grad();
      params.emplace_back(std::to_string(i), w);
    }
    AdamW o(params, {.lr = 0.01, .low = {.master_weights = true}});
    o.set_home(home);
    const Tensor x = to(random.tensor({16, 1024}), DType::bf16).to(Device::cuda());
    std::vector<double> losses;
    for (int step = 0; step < 5; ++step) {
      Tensor h = x;
      for (const auto& [name, w] : params) h = tanh(matmul(h, w)) + h;
      const Tensor loss = mean(to(h * h, DType::f32));
      loss.backward();
      o.step();
      o.zero_grad();
      losses.push_back(loss.item());
    }
    return losses;
  };
  const auto want = train({});
  EXPECT_LT(want.back(), want.front());
  // Room for parameters and gradients (32 MB) and activations, and not for 96 MB of state besides.
  cuda::synchronize();
  memory::release_cached();
  const double room = static_cast<double>(memory::stats(DeviceType::cuda).reserved + (int64_t{112} << 20));
  const double before = cuda::set_memory_fraction(room / static_cast<double>(cuda::properties().memory_bytes));
  EXPECT_THROW(train({}), MemoryError);
  EXPECT_EQ(train({.who = Who::cpu}), want);
  EXPECT_EQ(train({.who = Who::cpu, .gradients_leave = true}), want);
  EXPECT_EQ(train({.who = Who::split, .cpu_share = 0.75, .gradients_leave = true}), want);
  if (streams()) {
    const int64_t near = memory::set_near_limit(26 << 20, Device::cuda(), Tier::pinned);  // two groups
    EXPECT_EQ(train({.where = Tier::host, .who = Who::split, .cpu_share = 0.5, .group_bytes = 1}), want);
    EXPECT_EQ(train({.where = Tier::host, .group_bytes = 1}), want);
    memory::set_near_limit(near, Device::cuda(), Tier::pinned);
  }
  cuda::set_memory_fraction(before);
}

TEST_F(CudaHome, MovesAndIsNotCaptured) {
  AdamW want(params_on(Device::cuda(), DType::f32), {.lr = 0.1}),
      got(params_on(Device::cuda(), DType::f32), {.lr = 0.1});
  std::vector<StateHome> homes{{.who = Who::cpu}, {}, {.who = Who::split, .cpu_share = 0.5}, {.who = Who::cpu}};
  if (streams()) homes.insert(homes.begin() + 2, {.where = Tier::host});
  uint64_t step = 0;
  for (const StateHome& home : homes) {
    got.set_home(home);
    ++step;
    for (AdamW* o : {&want, &got}) {
      set_grads(*o, DType::f32, step);
      o->step();
    }
    expect_same(got, want);
  }
  EXPECT_FALSE(got.capturable());
  cuda::Graph graph;
  EXPECT_THROW(graph.capture([&] { got.step(); }), ValueError);
}

TEST_F(CudaHome, SplitByMeasuredRates) {
  AdamW o(params_on(Device::cuda(), DType::bf16), {.low = {.master_weights = true}});
  const HomeRates r = measure_home_rates(o, Device::cuda(), DType::bf16);
  std::printf("  to host %.1f GB/s, to device %.1f GB/s, cpu %.2f G/s, device %.1f G/s\n", r.to_host * 1e-9,
              r.to_device * 1e-9, r.cpu * 1e-9, r.device * 1e-9);
  EXPECT_GT(r.device, r.cpu);
  EXPECT_GT(r.to_host, 1e9);
  o.set_home({.who = Who::split});
  std::printf("  share of the CPU %.2f\n", o.home().cpu_share);
  set_grads(o, DType::bf16, 1);
  o.step();
}

}  // namespace
}  // namespace strata::optim
