// Layers frozen by name: what is left trains with the gradients that it had, in less memory and less work (the case
// that PockEngine, Zhu et al. 2023, arXiv:2310.17752, compiles for).
#include <map>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/recording.h"
#include "strata/core/rng.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

struct Step {
  std::map<std::string, std::vector<uint8_t>> gradients, weights, first_weights;
  int64_t peak_bytes = 0;
  double backward_flops = 0, forward_flops = 0;
};

// The second of two steps; parameters whose name begins so are frozen.
Step step_with_frozen(const std::string& family, std::initializer_list<std::string_view> frozen) {
  manual_seed(11);
  const auto model = make_model(small_model(family, 4, 32, 24));
  model->train();
  optim::NamedTensors trained;
  Step found;
  for (auto& [name, p] : model->named_parameters()) {
    const bool is_frozen =
        std::any_of(frozen.begin(), frozen.end(), [&](std::string_view start) { return name.starts_with(start); });
    p.set_requires_grad(!is_frozen);
    if (!is_frozen) trained.emplace_back(name, p);
    found.first_weights[name] = bits(p);
  }
  const Tensor x = stepping_tokens(2, 32, 5, 24), y = (x + 1) % Scalar(24);
  // A rate of zero: the second step's gradients are at the first weights in every variant.
  optim::AdamW optimizer(trained, {.lr = 0.0, .weight_decay = 0.0});
  const auto step = [&] {
    optimizer.zero_grad();
    model->loss(x, y).backward();
    optimizer.step();
  };
  step();
  const Recording r = record(step);
  found.peak_bytes = r.peak_bytes().first;
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (!r.is_work(i)) continue;
    if (r.calls[i].phase == Phase::backward) found.backward_flops += static_cast<double>(r.calls[i].cost.flops);
    if (r.calls[i].phase == Phase::forward) found.forward_flops += static_cast<double>(r.calls[i].cost.flops);
  }
  for (const auto& [name, p] : model->named_parameters()) {
    if (p.grad().defined()) found.gradients[name] = bits(p.grad());
    found.weights[name] = bits(p);
  }
  return found;
}

TEST(FrozenLayers, TheOthersTrainWithTheSameGradientsInLessMemoryAndWork) {
  for (const std::string family : {"gpt", "llama"}) {
    const Step all = step_with_frozen(family, {});
    const Step some =
        step_with_frozen(family, {"token_embedding", "position_embedding", "blocks.0.", "blocks.1.", "blocks.2."});
    size_t frozen = 0;
    for (const auto& [name, gradient] : all.gradients) {
      const auto it = some.gradients.find(name);
      if (it == some.gradients.end()) {
        ++frozen;
        EXPECT_EQ(some.weights.at(name), some.first_weights.at(name)) << name;
      } else {
        EXPECT_EQ(it->second, gradient) << family << " " << name;
      }
    }
    EXPECT_GT(frozen, all.gradients.size() / 2) << family;
    EXPECT_FALSE(some.gradients.empty()) << family;
    EXPECT_EQ(some.forward_flops, all.forward_flops) << family;
    // Backward stops at the last block: a quarter of the blocks' work and the output layer's are left.
    EXPECT_LT(some.backward_flops, 0.5 * all.backward_flops) << family;
    EXPECT_GT(some.backward_flops, 0.1 * all.backward_flops) << family;
    EXPECT_LT(some.peak_bytes, 0.6 * static_cast<double>(all.peak_bytes)) << family;
  }
}

// Weights alone are frozen, norms and biases train (BitFit): gradients flow through all blocks, and are those that they
// were.
TEST(FrozenLayers, InTheMiddleLetGradientsThrough) {
  const Step all = step_with_frozen("gpt", {});
  const Step some = step_with_frozen("gpt", {"blocks.1.", "blocks.2.mlp"});
  EXPECT_EQ(some.gradients.count("blocks.1.attn.qkv.weight"), 0U);
  for (const auto& [name, gradient] : some.gradients) EXPECT_EQ(gradient, all.gradients.at(name)) << name;
  EXPECT_EQ(some.gradients.count("blocks.0.attn.qkv.weight"), 1U);
  EXPECT_LT(some.backward_flops, all.backward_flops);
}

}  // namespace
}  // namespace strata
