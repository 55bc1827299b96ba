// Networks whose weights come and go while an update is under way: the losses of one that stays.
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/memory/home_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/nn/container.h"
#include "strata/nn/layers.h"
#include "strata/nn/streamed.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

const Tier kHome = Tier::named("home of a network");

void make_home() {
  static memory::Backend* const made = [] {
    auto* m = new memory::HomedMemory("network", DeviceType::cpu, kHome, std::make_unique<memory::TestHome>());
    memory::register_backend(*m);
    return m;
  }();
  ASSERT_NE(made, nullptr);
}

struct Net : nn::Module {
  Net() : Module("Net") {
    for (int i = 0; i < 6; ++i) list.push_back(nn::Linear(48, 48));
  }
  Tensor forward(const Tensor& x) const {
    Tensor h = x;
    for (const nn::Linear& l : list) h = h + gelu(l(h));
    return h;
  }
  nn::ModuleList<nn::Linear> list = register_module("list", nn::ModuleList<nn::Linear>());
};

struct Trained {
  std::vector<double> numbers;
  std::vector<Tensor> weights;
  double before_step = 0;  // the share that had been updated when step() came, in one of them
};

// Several passes a step, clipped, one step left out, evaluated between; with `near` bytes of weights.
// With `free` gradients are not clipped, no step is left out, and updates begin in backward.
Trained train(bool away, optim::StateHome::Who who, bool low, int64_t near, bool free = false) {
  manual_seed(5);
  const Net net;
  const Tensor x = randn({9, 48});
  std::unique_ptr<nn::Streamed> streamed;
  if (away) streamed = std::make_unique<nn::Streamed>(net, nn::StreamOptions{.tier = kHome, .recompute = false});
  optim::AdamW o(net.named_parameters(), {.lr = 0.01});
  if (away) o.set_home({.where = kHome, .who = who, .ahead = true});
  const int64_t before = away ? memory::set_near_limit(near, Device::cpu(), kHome) : 0;
  Trained r;
  const auto loss_of = [&](double scale) {
    const AutocastScope cast(DType::bf16, low);
    const Tensor y = net.forward(x);
    return mean((y * y).to(DType::f32)) * scale;
  };
  for (int step = 0; step < 6; ++step) {
    o.zero_grad();
    Tensor loss;
    {
      std::optional<nn::StreamScope> scope;
      if (streamed) scope.emplace(*streamed);
      for (int pass = 0; pass < 2; ++pass) {
        loss = loss_of(step == 3 && !free ? INFINITY : 0.5);
        std::optional<optim::UpdateInBackward> early;
        if (free && pass == 1) early.emplace(o);
        loss.backward();
      }
    }
    if (away && free && step == 4)  // who reads what has been begun waits for it
      for (const auto& [name, p] : net.named_parameters()) (void)p.detach().to(Tier::host);
    const auto report = optim::StepReport::of(o.step_guarded({.max_norm = free            ? INFINITY
                                                                          : step % 2 == 0 ? 0.1
                                                                                          : 1e3,
                                                              .loss = step == 3 ? Tensor() : loss.detach()})
                                                  .data<double>());
    if (away && free && step == 4) {
      o.finish();
      r.before_step = o.ahead_times()->before_step;
    }
    if (report.outcome == optim::StepReport::diverged) o.reset_guard();
    r.numbers.push_back(loss.item());
    r.numbers.push_back(report.norm);
    if (step != 2) continue;
    const NoGrad guard;
    r.numbers.push_back(loss_of(1).item());
  }
  o.finish();
  for (const auto& [name, p] : net.named_parameters()) r.weights.push_back(p.detach().to(Tier::host).clone());
  for (const auto& [name, t] : o.state_dict()) r.weights.push_back(t.to(Tier::host).clone());
  if (away) memory::set_near_limit(before, Device::cpu(), kHome);
  return r;
}

TEST(TiersAhead, AStreamedNetworkTrainsToTheSameBits) {
  make_home();
  using Who = optim::StateHome::Who;
  for (const bool low : {false, true})
    for (const bool free : {false, true}) {
      const Trained want = train(false, Who::device, low, 0, free);
      for (const int64_t near : {int64_t{0}, int64_t{16 * 12288}})
        for (const Who who : {Who::device, Who::cpu}) {
          SCOPED_TRACE(cat("low ", low, " near ", near, ' ', name_of(who), free ? ", in backward" : ""));
          const Trained got = train(true, who, low, near, free);
          EXPECT_EQ(got.before_step > 0.5, free);
          ASSERT_EQ(got.numbers.size(), want.numbers.size());
          for (size_t i = 0; i < want.numbers.size(); ++i)
            EXPECT_TRUE(got.numbers[i] == want.numbers[i] ||
                        (std::isnan(got.numbers[i]) && std::isnan(want.numbers[i])))
                << i << ": " << got.numbers[i] << ' ' << want.numbers[i];
          ASSERT_EQ(got.weights.size(), want.weights.size());
          for (size_t i = 0; i < want.weights.size(); ++i)
            EXPECT_TRUE((got.weights[i] == want.weights[i]).all().item<bool>()) << i;
        }
    }
}

}  // namespace
}  // namespace strata
