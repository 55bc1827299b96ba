// Guarded steps and the loss scale, on the CPU and, where there is one, on a CUDA device.

#include "strata/optim/loss_scaler.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
namespace {

class Guarded : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static Device device() { return {GetParam(), 0}; }
  static Tensor there(const std::vector<double>& v, DType dtype = DType::f32) {
    return from_span<double>(v, {static_cast<int64_t>(v.size())}).to(dtype).to(device());
  }
  static Tensor param(const std::vector<double>& v) { return there(v).set_requires_grad(); }
  static StepReport report(const Tensor& numbers) {
    return StepReport::of(numbers.to(Device::cpu()).to_vector<double>().data());
  }
};
INSTANTIATE_TEST_SUITE_P(On, Guarded, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](const auto& p) { return p.param == DeviceType::cpu ? "cpu" : "cuda"; });

TEST_P(Guarded, ReportsAndClips) {
  Tensor p = param({1, 2}), q = param({1, 2});
  SGD a(TensorList{p}, {.lr = 0.5}), b(TensorList{q}, {.lr = 0.5});
  p.set_grad(there({3, 4}));
  q.set_grad(there({3, 4}));
  const StepReport r = report(a.step_guarded({.max_norm = 1, .loss = there({2.5}, DType::f64)}));
  EXPECT_EQ(r.outcome, StepReport::updated);
  EXPECT_DOUBLE_EQ(r.loss, 2.5);
  EXPECT_DOUBLE_EQ(r.norm, 5);
  EXPECT_DOUBLE_EQ(r.scale, 1);
  b.step_clipped(1);
  EXPECT_EQ(values(p.to(Device::cpu())), values(q.to(Device::cpu())));
  EXPECT_NEAR(values(p.to(Device::cpu()))[0], 1 - 0.5 * 0.6, 1e-6);
}

TEST_P(Guarded, ADivergedStepAndThoseAfterItChangeNothing) {
  for (const bool by_loss : {true, false}) {
    Tensor p = param({1, 2, 3});
    AdamW o(TensorList{p}, {.lr = 0.1});
    const auto step = [&](double loss, double gradient) {
      p.set_grad(there({gradient, 1, 1}));
      return report(o.step_guarded({.loss = there({loss})}));
    };
    EXPECT_EQ(step(1, 1).outcome, StepReport::updated);
    const Doubles before = values(p.to(Device::cpu())),
                  moment = values(o.state_dict().at("0.exp_avg").to(Device::cpu()));
    const StepReport bad = by_loss ? step(NAN, 1) : step(1, INFINITY);
    EXPECT_EQ(bad.outcome, StepReport::diverged);
    EXPECT_EQ(std::isnan(bad.loss), by_loss);
    EXPECT_EQ(std::isfinite(bad.norm), by_loss);
    EXPECT_EQ(step(1, 1).outcome, StepReport::diverged);  // launched before anyone had looked
    EXPECT_EQ(values(p.to(Device::cpu())), before);
    EXPECT_EQ(values(o.state_dict().at("0.exp_avg").to(Device::cpu())), moment);
    EXPECT_EQ(o.state_dict().at("0.step").item<int64_t>(), 1);
    o.reset_guard();
    EXPECT_EQ(step(1, 1).outcome, StepReport::updated);
    EXPECT_NE(values(p.to(Device::cpu())), before);
    EXPECT_EQ(o.state_dict().at("0.step").item<int64_t>(), 2);
  }
}

TEST_P(Guarded, TheScaleFollowsTheGradients) {
  LossScaler scaler(device(), {.init = 1024, .growth = 2, .backoff = 0.5, .growth_interval = 3});
  Tensor p = param({1, 2}), q = param({1, 2});
  AdamW scaled(TensorList{p}, {.lr = 0.1}), plain(TensorList{q}, {.lr = 0.1});
  const auto loss_of = [](const Tensor& x) { return sum(x * x); };
  const auto step = [&] {
    p.set_grad({});
    const Tensor loss = loss_of(p);
    scaler.scale(loss).backward();
    return report(scaled.step_guarded({.max_norm = 1, .loss = loss.detach(), .scaler = &scaler}));
  };
  for (int i = 0; i < 3; ++i) {
    q.set_grad({});
    const Tensor loss = loss_of(q);
    loss.backward();
    const StepReport want = report(plain.step_guarded({.max_norm = 1, .loss = loss.detach()})), got = step();
    EXPECT_EQ(got.scale, 1024);
    EXPECT_NEAR(got.norm, want.norm, 1e-6 * want.norm);  // without the scale
    EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
  }
  EXPECT_EQ(values(p.to(Device::cpu())), values(q.to(Device::cpu())));  // a power of two changes no bit
  EXPECT_EQ(scaler.value(), 2048);                                      // three finite steps in a row

  // Gradients that are not finite under the scale: no update, no count, half the scale.
  const Doubles before = values(p.to(Device::cpu()));
  p.set_grad(there({INFINITY, 1}));
  const StepReport r = report(scaled.step_guarded({.scaler = &scaler}));
  EXPECT_EQ(r.outcome, StepReport::skipped);
  EXPECT_EQ(r.scale, 2048);
  EXPECT_EQ(scaler.value(), 1024);
  EXPECT_EQ(values(p.to(Device::cpu())), before);
  EXPECT_EQ(scaled.state_dict().at("0.step").item<int64_t>(), 3);
  EXPECT_EQ(step().outcome, StepReport::updated);
  EXPECT_EQ(scaled.state_dict().at("0.step").item<int64_t>(), 4);

  // A copy of the state goes on in the same place: two more finite steps, then growth.
  LossScaler other(device(), scaler.options());
  other.load_state(scaler.state());
  EXPECT_EQ(other.value(), 1024);
  step();
  EXPECT_EQ(scaler.value(), 1024);
  step();
  EXPECT_EQ(scaler.value(), 2048);

  // A loss that is not finite is no matter of the scale.
  p.set_grad(there({1, 1}));
  EXPECT_EQ(report(scaled.step_guarded({.loss = there({NAN}), .scaler = &scaler})).outcome, StepReport::diverged);
  EXPECT_EQ(scaler.value(), 2048);
}

TEST_P(Guarded, AScaleThatFallsForeverIsADivergence) {
  LossScaler scaler(device(), {.init = 1, .backoff = 0.25});
  Tensor p = param({1});
  SGD o(TensorList{p}, {.lr = 1});
  int skipped = 0;
  for (;; ++skipped) {
    ASSERT_LT(skipped, 30);
    p.set_grad(there({NAN}));
    if (report(o.step_guarded({.scaler = &scaler})).outcome == StepReport::diverged) break;
  }
  EXPECT_EQ(skipped, 8);  // 1, 1/4, ... 2^-14
  EXPECT_EQ(values(p.to(Device::cpu())), Doubles{1});
}

TEST_P(Guarded, MuonAndAdafactorAreGuardedToo) {
  for (const bool muon : {true, false}) {
    Tensor p = full({4, 4}, 0.5).to(device()).set_requires_grad();
    std::unique_ptr<Optimizer> o;
    if (muon)
      o = std::make_unique<Muon>(TensorList{p}, MuonOptions{.lr = 0.1});
    else
      o = std::make_unique<Adafactor>(TensorList{p}, AdafactorOptions{.lr = 0.1});
    EXPECT_TRUE(o->capturable());
    LossScaler scaler(device(), {.init = 4});
    const auto step = [&](double g) {
      p.set_grad(full({4, 4}, g).to(device()));
      return report(o->step_guarded({.max_norm = 1, .scaler = &scaler})).outcome;
    };
    EXPECT_EQ(step(NAN), StepReport::skipped);
    EXPECT_EQ(scaler.value(), 2);
    EXPECT_EQ(values(p.to(Device::cpu())), Doubles(16, 0.5));
    EXPECT_EQ(step(1), StepReport::updated);
    EXPECT_NE(values(p.to(Device::cpu())), Doubles(16, 0.5));
  }
}

TEST(LossScaler, RefusesNonsense) {
  EXPECT_THROW(LossScaler(Device::cpu(), {.init = 0}), ValueError);
  EXPECT_THROW(LossScaler(Device::cpu(), {.backoff = 2}), ValueError);
  EXPECT_THROW(LossScaler(Device::cpu(), {.growth_interval = 0}), ValueError);
  LossScaler s;
  EXPECT_EQ(s.value(), 65536);
  EXPECT_THROW(s.load_state(zeros({3}, DType::f64)), ShapeError);
  EXPECT_THROW(s.load_state(zeros({2})), DTypeError);
  Tensor p = leaf(ones({2}));
  SGD o(TensorList{p}, {.lr = 1});
  p.set_grad(ones({2}));
  EXPECT_THROW(o.step_guarded({.max_norm = 0}), ValueError);
  EXPECT_THROW(o.step_guarded({.loss = ones({2})}), ShapeError);
  EXPECT_EQ(s.scale(full({}, 2.0, DType::f16)).dtype(), DType::f32);
  EXPECT_EQ(s.scale(full({}, 2.0, DType::f16)).item(), 131072);
}

// ---- captured steps ----

template <class Make>
void captured_equals_eager(Make&& make, bool scaled, DType dtype = DType::f32) {
  const auto run = [&](bool captured) {
    const Device card = Device::cuda();
    manual_seed(4);
    TensorList params;
    for (const Shape& s : {Shape{33, 7}, Shape{5}, Shape{129, 64}, Shape{1}})
      params.push_back(Samples(DType::f32, 3).tensor(s).to(dtype).to(card).set_requires_grad());
    auto o = make(params);
    std::optional<LossScaler> scaler;
    if (scaled) scaler.emplace(card, LossScalerOptions{.init = 4096, .growth_interval = 2});
    Tensor x = full({}, 1.0).to(card);
    const auto step = [&] {
      o->zero_grad();
      Tensor l = x * 0;
      for (const Tensor& q : params) {
        const Tensor p = q.to(DType::f32);
        l = l + sum((p * p * p).tanh()) * x;
      }
      (scaler ? scaler->scale(l) : l).backward();
      return o->step_guarded({.max_norm = 0.7, .loss = l.detach(), .scaler = scaler ? &*scaler : nullptr});
    };
    cuda::Graph graph;
    Tensor report;
    std::vector<double> seen;
    for (int k = 0; k < 10; ++k) {
      // Step 4's gradients overflow under a scale; without one they would end the run.
      x.fill_(scaled && k == 4 ? 1e36 : 1 + 0.25 * k);
      o->set_lr(0.01 * (k + 1));
      if (captured && k == 1) graph.capture([&] { report = step(); });
      if (captured && k >= 1) {
        graph.replay();
      } else {
        report = step();
      }
      for (double v : report.to_vector<double>()) seen.push_back(std::isnan(v) ? -1 : v);
    }
    for (const Tensor& p : params)
      for (double v : p.detach().to_vector<double>()) seen.push_back(v);
    const StateDict state = o->state_dict();
    for (auto it = state.begin(); it != state.end(); ++it) {
      const Tensor& t = it->second;
      for (double v : t.to_vector<double>()) seen.push_back(v);
    }
    if (scaler) seen.push_back(scaler->value());
    return seen;
  };
  const std::vector<double> eager = run(false), captured = run(true);
  ASSERT_EQ(eager, captured);
}

TEST(CapturedStep, EqualsTheEagerOneBitForBit) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  for (const bool scaled : {false, true}) {
    captured_equals_eager([](const TensorList& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager(
        [](const TensorList& p) { return std::make_unique<Adam>(p, AdamOptions{.lr = 1, .weight_decay = 0.1}); },
        scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<Lion>(p, LionOptions{.lr = 1}); }, scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 1}); }, scaled);
    captured_equals_eager(
        [](const TensorList& p) {
          return std::make_unique<SGD>(p, SGDOptions{.lr = 1, .momentum = 0.9, .nesterov = true});
        },
        scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<Muon>(p, MuonOptions{.lr = 1}); }, scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<RMSprop>(p, RMSpropOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<Adagrad>(p, AdagradOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<Adamax>(p, AdamaxOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<NAdam>(p, NAdamOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<RAdam>(p, RAdamOptions{.lr = 1}); },
                          scaled);
    captured_equals_eager([](const TensorList& p) { return std::make_unique<Adafactor>(p, AdafactorOptions{.lr = 1}); },
                          scaled);
  }
}

TEST(CapturedStep, EqualsTheEagerOneBitForBitIn16Bits) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const LowPrecision master{.master_weights = true}, stochastic{.stochastic_rounding = true, .seed = 5},
      low{.stochastic_rounding = true, .low_state = true};
  for (const bool scaled : {false, true}) {
    const auto all = [&](DType dtype, const LowPrecision& how) {
      captured_equals_eager(
          [&](const TensorList& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 1, .low = how}); }, scaled,
          dtype);
      captured_equals_eager(
          [&](const TensorList& p) { return std::make_unique<Lion>(p, LionOptions{.lr = 1, .low = how}); }, scaled,
          dtype);
      captured_equals_eager(
          [&](const TensorList& p) {
            return std::make_unique<SGD>(p, SGDOptions{.lr = 1, .momentum = 0.9, .low = how});
          },
          scaled, dtype);
      captured_equals_eager(
          [&](const TensorList& p) { return std::make_unique<Muon>(p, MuonOptions{.lr = 1, .low = how}); }, scaled,
          dtype);
      captured_equals_eager(
          [&](const TensorList& p) { return std::make_unique<Adafactor>(p, AdafactorOptions{.lr = 1, .low = how}); },
          scaled, dtype);
    };
    for (const LowPrecision& how : {LowPrecision{}, master, stochastic, low}) all(DType::bf16, how);
    for (const LowPrecision& how : {LowPrecision{}, master}) all(DType::f16, how);
  }
}

TEST(CapturedStep, SaysWhatItNeeds) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  Tensor p = ones({4, 4}).to(Device::cuda()).set_requires_grad();
  p.set_grad(ones({4, 4}).to(Device::cuda()));
  AdamW fresh(TensorList{p}, {.lr = 1});
  HostBound host_bound({p});
  EXPECT_FALSE(host_bound.capturable());
  cuda::Graph graph;
  const std::string early = message<ValueError>([&] { graph.capture([&] { fresh.step_guarded(); }); });
  EXPECT_NE(early.find("run a step before"), std::string::npos) << early;
  const std::string host = message<ValueError>([&] { graph.capture([&] { host_bound.step_guarded(); }); });
  EXPECT_NE(host.find("on the host"), std::string::npos) << host;
  fresh.step_guarded();  // goes on
  EXPECT_EQ(fresh.state_dict().at("0.step").item<int64_t>(), 1);
}

}  // namespace
}  // namespace strata::optim
