// Updates that run ahead on a CUDA device, by the card, the CPU and both: the bits of a step whose state stays there.

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
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

std::vector<uint8_t> bytes(const Tensor& t) {
  const Tensor here = contiguous(t.detach()).to(Device::cpu());
  if (here.nbytes() == 0) return {};
  const auto* p = static_cast<const uint8_t*>(here.raw_data());
  return {p, p + here.nbytes()};
}
const std::vector<Shape> kShapes{{37}, {64, 128}, {5000}, {},         {3, 17, 33},
                                 {0},  {4096},    {8193}, {300, 700}, {1, 9000011}};

// Tier(): on the card.
NamedTensors params_on(DType dtype, Tier tier, const std::vector<Shape>& shapes = kShapes) {
  NamedTensors all;
  Samples random(DType::f32, 3);
  for (size_t i = 0; i < shapes.size(); ++i) {
    Tensor p = random.uniform(shapes[i], -1, 1, dtype).to(Device::cuda());
    if (!(tier == Tier())) p = p.to(tier);
    p.set_requires_grad();
    all.emplace_back("p" + std::to_string(i), p);
  }
  return all;
}
void set_grads(const Optimizer& o, DType dtype, uint64_t seed, double factor = 1) {
  Samples random(DType::f32, seed);
  for (const auto& [name, p] : o.params()) {
    Tensor t = p, g = to(random.tensor(p.shape()) * Scalar(factor), dtype).to(Device::cuda());
    // Those of weights that are read in place come and go as well.
    if (p.tier() == Tier::pinned || p.tier() == memory::kUnified) g = g.to(Tier::pinned);
    t.set_grad(g);
  }
}
void expect_same(const Optimizer& got, const Optimizer& want) {
  const NamedTensors a = got.params(), b = want.params();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(bytes(a[i].second) == bytes(b[i].second)) << a[i].first;
  const StateDict s = got.state_dict(), t = want.state_dict();
  ASSERT_EQ(s.size(), t.size());
  for (const auto& [key, value] : t) ASSERT_TRUE(bytes(s.at(key)) == bytes(value)) << key;
}
StateHome home(Who who) {
  return {.where = Tier::host, .who = who, .ahead = true};
}

class CudaAhead : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_F(CudaAhead, HasTheBitsOfAStepOnTheCard) {
  struct Case {
    const char* optimizer;
    OptionValues options;
    DType dtype, grad;
  };
  const Case cases[] = {
      {"adamw", {}, DType::f32, DType::f32},
      {"adamw", {}, DType::f32, DType::bf16},
      {"adamw", {{"master_weights", true}}, DType::bf16, DType::bf16},
      {"adamw", {{"stochastic_rounding", true}}, DType::bf16, DType::bf16},
      {"adamw", {{"state_8bit", true}, {"min_8bit_size", int64_t{0}}}, DType::f32, DType::f32},
      {"adamw",
       {{"compensated_weights", true}, {"state_8bit", true}, {"min_8bit_size", int64_t{0}}},
       DType::bf16,
       DType::bf16},
      {"lion", {}, DType::f32, DType::f32},
      {"sgd", {{"momentum", 0.9}}, DType::f32, DType::f32},
      {"muon", {}, DType::f32, DType::f32},  // updates in step()
  };
  for (const Case& c : cases)
    for (const Who who : {Who::device, Who::cpu, Who::split}) {
      if (std::string_view(c.optimizer) == "muon" && who != Who::device) continue;  // the CPU's products differ
      SCOPED_TRACE(cat(c.optimizer, ' ', c.dtype, ' ', c.grad, ' ', name_of(who)));
      const NamedTensors here = params_on(c.dtype, Tier()), there = params_on(c.dtype, Tier::pinned);
      const auto want = make_optimizer(c.optimizer, {{here, c.options}}),
                 got = make_optimizer(c.optimizer, {{there, c.options}});
      got->set_home(home(who));
      LossScaler a(Device::cuda(), {.init = 8}), b(Device::cuda(), {.init = 8});
      for (uint64_t step = 0; step < 5; ++step) {
        for (const bool away : {false, true}) {
          Optimizer& o = away ? *got : *want;
          o.set_lr(0.01 + 0.01 * static_cast<double>(step));
          set_grads(o, c.grad, step, step == 2 ? INFINITY : step == 3 ? 8 : 1);
          if (step == 3) {
            o.step_guarded({.max_norm = 2, .scaler = away ? &b : &a});
          } else if (step < 3) {
            o.step_clipped(step == 0 ? 0.5 : 1e9);
          } else {
            o.step(0.5);
          }
          o.zero_grad();
        }
        if (step != 2) expect_same(*got, *want);
      }
    }
}

// Backward, the norm that is noted in it, low copies, a table that is read in place, several steps without a look.
TEST_F(CudaAhead, TrainsAsOnTheCard) {
  const auto train = [](bool away, Who who) {
    const memory::TagScope tag(memory::Tag::parameter);
    NamedTensors params = params_on(DType::f32, away ? Tier::pinned : Tier(), std::vector<Shape>(5, Shape{512, 512}));
    if (away) {
      params[0].second = params[0].second.detach().to(memory::kUnified);
      params[0].second.set_requires_grad();
    }
    std::vector<HookHandle> hooks;
    for (const auto& [name, p] : params)
      if (away)
        hooks.push_back(register_post_accumulate_grad_hook(p, [](const Tensor& leaf) {
          if (leaf.grad().tier() != Tier::pinned) Tensor(leaf).set_grad(leaf.grad().to(Tier::pinned));
        }));
    AdamW o(params, {.lr = 1e-2});
    if (away) o.set_home(home(who));
    Samples random(DType::f32, 4);
    const Tensor x = (random.tensor({64, 512}) * Scalar(0.05)).to(Device::cuda());
    std::vector<double> losses;
    std::vector<Tensor> reports;
    for (int step = 0; step < 8; ++step) {
      Tensor h = x;
      for (const auto& [name, w] : params) h = tanh(matmul(h, w)) * 0.5 + h;
      const Tensor loss = mean(h * h);
      loss.backward();
      reports.push_back(o.step_guarded({.max_norm = step % 2 ? 1e-3 : 1e3, .loss = loss.detach()}).clone());
      o.zero_grad();
    }
    for (const Tensor& r : reports) {
      const Tensor there = r.to(Device::cpu());
      losses.push_back(StepReport::of(there.data<double>()).loss);
      losses.push_back(StepReport::of(there.data<double>()).norm);
    }
    for (HookHandle& hook : hooks) hook.remove();
    std::vector<std::vector<uint8_t>> all;
    for (const auto& [name, p] : params) all.push_back(bytes(p));
    return std::pair(losses, all);
  };
  const auto want = train(false, Who::device);
  for (const Who who : {Who::device, Who::cpu, Who::split}) EXPECT_TRUE(train(true, who) == want) << name_of(who);
}

TEST_F(CudaAhead, BothTakePieces) {
  const NamedTensors params = params_on(DType::f32, Tier::pinned, std::vector<Shape>(8, Shape{4096, 4096}));
  AdamW o(params);
  o.set_home(home(Who::split));
  for (uint64_t step = 0; step < 2; ++step) {
    for (const auto& [name, p] : params)
      Tensor(p).set_grad(full(p.shape(), 0.25, DType::f32).to(Device::cuda()).to(Tier::pinned));
    o.step();
  }
  o.finish();
  EXPECT_GT(o.home().cpu_share, 0.02);
  EXPECT_LT(o.home().cpu_share, 0.98);
}

}  // namespace
}  // namespace strata::optim
