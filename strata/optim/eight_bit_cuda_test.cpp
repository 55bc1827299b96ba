// Moments in 8 bits and weights in halves on a CUDA device: the bits of the CPU.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/magnitudes.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/graphed.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes(const Tensor& t) {
  const Tensor here = contiguous(t.detach().to(Device::cpu()));
  const auto* p = static_cast<const uint8_t*>(here.raw_data());
  return {p, p + here.nbytes()};
}

// Partial blocks, several chunks, nothing.
const std::vector<Shape> kShapes = {{37}, {64, 128}, {5000}, {}, {3, 17, 33}, {0}, {4096}, {8193}, {70'001}, {256}};

struct Pair {
  Pair(std::string_view rule, const OptionValues& options, DType dtype) {
    manual_seed(2);
    for (const Shape& s : kShapes) {
      here.push_back(leaf(randn(s).to(dtype)));
      there.push_back(leaf(here.back().detach().to(Device::cuda())));
    }
    a = make_optimizer(rule, {{number_params(here), options}});
    b = make_optimizer(rule, {{number_params(there), options}});
  }
  void set_grads(DType dtype, uint64_t seed) const {
    manual_seed(seed);
    for (size_t i = 0; i < here.size(); ++i) {
      const Tensor g = randn(here[i].shape()).to(dtype);
      Tensor p = here[i], q = there[i];
      p.set_grad(g);
      q.set_grad(g.to(Device::cuda()));
    }
  }
  // How many bytes of parameters and states are not the same, of how many.
  std::pair<int64_t, int64_t> differing() const {
    int64_t differ = 0, all = 0;
    const auto compare = [&](const Tensor& x, const Tensor& y) {
      const Bytes p = bytes(x), q = bytes(y);
      ASSERT_EQ(p.size(), q.size());
      for (size_t i = 0; i < p.size(); ++i) differ += p[i] != q[i];
      all += static_cast<int64_t>(p.size());
    };
    for (size_t i = 0; i < here.size(); ++i) compare(here[i], there[i]);
    const StateDict mine = a->state_dict(), theirs = b->state_dict();
    EXPECT_EQ(mine.size(), theirs.size());
    for (const auto& [key, t] : mine) compare(t, theirs.at(key));
    return {differ, all};
  }
  TensorList here, there;
  std::unique_ptr<Optimizer> a, b;
};

class CudaEightBit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

struct Way {
  DType dtype;
  OptionValues options;
  std::string_view update = "";
};
std::vector<Way> ways() {
  const OptionValues eight{{"state_8bit", true}, {"min_8bit_size", int64_t{0}}};
  std::vector<Way> all{{DType::f32, eight}, {DType::bf16, eight}, {DType::f16, eight}};
  all.push_back({DType::bf16, {{"compensated_weights", true}}, "compensated, moments in f32"});
  for (const char* update : {"compensated_weights", "master_weights", "stochastic_rounding"}) {
    all.push_back({DType::bf16, eight, update});
    all.back().options[update] = true;
  }
  return all;
}

// Rules of operations that each round once on both, with constants that do not depend on the count: all of the bits.
TEST_F(CudaEightBit, HasTheBitsOfTheCpu) {
  const std::vector<std::pair<std::string_view, OptionValues>> rules{
      {"sgd", {{"lr", 0.125}, {"momentum", 0.9}}},
      {"lion", {{"lr", 0.01}}},
      {"rmsprop", {{"lr", 0.01}, {"momentum", 0.5}}},
      {"adagrad", {{"lr", 0.05}, {"initial_accumulator_value", 0.1}}}};
  for (const auto& [rule, options] : rules)
    for (const Way& way : ways())
      for (const DType grad : {DType::f32, DType::bf16}) {
        OptionValues all = way.options;
        all.insert(options.begin(), options.end());
        const Pair pair(rule, all, way.dtype);
        for (uint64_t t = 0; t < 4; ++t) {
          pair.set_grads(grad, 3 + t);
          pair.a->step();
          pair.b->step();
          EXPECT_EQ(pair.differing().first, 0)
              << cat(rule, ' ', way.dtype, " grad ", grad, ' ', way.update, " step ", t);
        }
      }
}

// The others' constants come from pow() of the host and of the device.
TEST_F(CudaEightBit, EveryRuleIsNearlyThatOfTheCpu) {
  const std::vector<std::pair<std::string_view, OptionValues>> rules{{"adamw", {{"lr", 0.05}}},
                                                                     {"adamw", {{"lr", 0.05}, {"amsgrad", true}}},
                                                                     {"adam", {{"lr", 0.05}, {"weight_decay", 0.1}}},
                                                                     {"adadelta", {}},
                                                                     {"adamax", {{"lr", 0.05}}},
                                                                     {"nadam", {{"lr", 0.05}}},
                                                                     {"radam", {{"lr", 0.05}, {"beta2", 0.5}}},
                                                                     {"rmsprop", {{"lr", 0.02}, {"centered", true}}},
                                                                     {"asgd", {{"lr", 0.1}}},
                                                                     {"rprop", {{"lr", 0.02}}}};
  for (const auto& [rule, options] : rules)
    for (const Way& way : ways()) {
      OptionValues all = way.options;
      all.insert(options.begin(), options.end());
      const Pair pair(rule, all, way.dtype);
      for (uint64_t t = 0; t < 3; ++t) {
        pair.set_grads(DType::f32, 3 + t);
        pair.a->step();
        pair.b->step();
      }
      for (size_t i = 0; i < pair.here.size(); ++i) {
        const Doubles x = values(pair.here[i]), y = values(pair.there[i].to(Device::cpu()));
        for (size_t j = 0; j < x.size(); ++j)
          ASSERT_NEAR(y[j], x[j], 0.02 * std::abs(x[j]) + 0.01) << rule << " tensor " << i << " element " << j;
      }
      const auto [differ, bytes_of_all] = pair.differing();
      EXPECT_LE(differ, bytes_of_all / 20) << cat(rule, ' ', way.dtype, ' ', way.update);
    }
}

TEST_F(CudaEightBit, MuonAndItsAdamWAreNearlyThoseOfTheCpu) {
  const Pair pair("muon", {{"lr", 0.02}, {"state_8bit", true}, {"min_8bit_size", int64_t{0}}}, DType::f32);
  for (uint64_t t = 0; t < 3; ++t) {
    pair.set_grads(DType::f32, 3 + t);
    pair.a->step();
    pair.b->step();
  }
  EXPECT_EQ(pair.b->state_dict().at("1.momentum_buffer").dtype(), DType::u8);
  for (size_t i = 0; i < pair.here.size(); ++i) {
    const Doubles x = values(pair.here[i]), y = values(pair.there[i].to(Device::cpu()));
    for (size_t j = 0; j < x.size(); ++j) ASSERT_NEAR(y[j], x[j], 2e-3 * (1 + std::abs(x[j]))) << i << ' ' << j;
  }
}

TEST_F(CudaEightBit, TwoRunsHaveTheSameBitsAndResumeToo) {
  for (const Way& way : ways()) {
    const auto run = [&](bool resumed) {
      const Pair pair("adamw", way.options, way.dtype);
      std::unique_ptr<Optimizer> o;
      for (uint64_t t = 0; t < 4; ++t) {
        pair.set_grads(DType::f32, 3 + t);
        (o ? *o : *pair.b).step_clipped(1);
        if (!resumed || t != 1) continue;
        StateDict saved;
        for (const auto& [key, tensor] : pair.b->state_dict()) saved.emplace(key, clone(tensor).to(Device::cpu()));
        o = make_optimizer("adamw", {{number_params(pair.there), way.options}});
        o->load_state_dict(saved);
      }
      std::vector<Bytes> all;
      for (const Tensor& p : pair.there) all.push_back(bytes(p));
      for (const auto& [key, tensor] : (o ? *o : *pair.b).state_dict()) all.push_back(bytes(tensor));
      return all;
    };
    const auto once = run(false);
    EXPECT_TRUE(once == run(false)) << cat(way.dtype, ' ', way.update);
    EXPECT_TRUE(once == run(true)) << cat(way.dtype, ' ', way.update);
  }
}

TEST_F(CudaEightBit, ParametersThatBeginBetweenVectorsAreUpdated) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool halves : {false, true}) {
      manual_seed(4);
      const Tensor whole = randn({3001}).to(dtype), g = randn({3000});
      Tensor p = leaf(whole.narrow(0, 1, 3000)), q = whole.to(Device::cuda()).narrow(0, 1, 3000).detach();
      q.set_requires_grad();
      const SGDOptions options{
          .lr = 0.125, .momentum = 0.5, .low = {.compensated_weights = halves, .state_8bit = true, .min_8bit_size = 0}};
      SGD a(TensorList{p}, options), b(TensorList{q}, options);
      for (int t = 0; t < 3; ++t) {
        p.set_grad(g);
        q.set_grad(g.to(Device::cuda()));
        a.step();
        b.step();
      }
      EXPECT_EQ(bytes(q), bytes(p)) << cat(dtype);
      EXPECT_EQ(bytes(b.state_dict().at("0.momentum_buffer")), bytes(a.state_dict().at("0.momentum_buffer")));
    }
}

TEST_F(CudaEightBit, AStepThatTheDeviceLeavesOutChangesNothing) {
  Tensor p = leaf(full({9000}, 1.0, DType::bf16).to(Device::cuda()));
  AdamW o(TensorList{p}, {.lr = 0.1, .low = {.compensated_weights = true, .state_8bit = true}});
  p.set_grad(randn({9000}).to(Device::cuda()));
  o.step_guarded();
  const auto all = [&] {
    std::vector<Bytes> found{bytes(p)};
    for (const auto& [key, t] : o.state_dict()) found.push_back(bytes(t));
    return found;
  };
  const auto before = all();
  Tensor g = ones({9000});
  g.data<float>()[8999] = NAN;
  p.set_grad(g.to(Device::cuda()));
  o.step_guarded();
  EXPECT_TRUE(before == all());
}

TEST_F(CudaEightBit, LargestMagnitudesAreLeftForFp8) {
  Tensor p = leaf(randn({300, 48}).to(Device::cuda()));
  AdamW o(TensorList{p}, {.lr = 0.1, .low = {.state_8bit = true}});
  cuda::want_magnitudes(p);
  for (int t = 0; t < 3; ++t) {
    p.set_grad(randn({300, 48}).to(Device::cuda()));
    o.step();
    const Tensor kept = cuda::kept_magnitudes(p);
    ASSERT_TRUE(kept.defined());
    EXPECT_EQ(kept.max().item(), p.detach().abs().max().item());
  }
}

TEST_F(CudaEightBit, AGraphHasTheBitsOfEager) {
  const auto run = [](bool as_graph) {
    manual_seed(6);
    Tensor w = leaf(randn({64, 96}).to(DType::bf16).to(Device::cuda()));
    AdamW o(TensorList{w}, {.lr = 0.05, .low = {.compensated_weights = true, .state_8bit = true}});
    const auto work = [&](const Tensor& x) {
      const Tensor y = to(w, DType::f32) * x, loss = sum(y * y);
      loss.backward();
      o.step();
      o.zero_grad();
      return loss;
    };
    auto step = graphed(work);
    for (int i = 0; i < 8; ++i) {
      o.set_lr(0.05 / (1 + i));
      const Tensor x = randn({64, 96}).to(Device::cuda());
      if (as_graph) {
        step(x);
      } else {
        work(x);
      }
    }
    EXPECT_EQ(step.replays() > 0, as_graph);
    std::vector<Bytes> found{bytes(w)};
    for (const auto& [key, t] : o.state_dict()) found.push_back(bytes(t));
    return found;
  };
  EXPECT_TRUE(run(true) == run(false));
}

}  // namespace
}  // namespace strata::optim
