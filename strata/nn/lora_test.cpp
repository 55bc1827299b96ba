// Adapters against their formula, and what they do to a tree of modules.

#include "strata/nn/lora.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/checkpoint.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/nn/attention.h"
#include "strata/nn/container.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/layers.h"
#include "strata/nn/name_pattern.h"
#include "strata/nn/transformer.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

void expect_close(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_LE((a.to(DType::f64) - b.to(DType::f64)).abs().max().item(), tolerance);
}
bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || (a == b).to(DType::f32).min().item() == 1);
}
// B begins at zero, where an adapter adds nothing.
void fill(const Module& root) {
  for (auto& [name, p] : lora_parameters(root))
    if (name.ends_with(".B"))
      init::normal_(p, 0, 0.5);
    else if (name.ends_with(".magnitude"))
      init::uniform_(p, 0.5, 2);
}
const Lora& only(const std::vector<AdaptedMap>& maps) {
  EXPECT_EQ(maps.size(), 1U);
  return maps.at(0).lora;
}
std::vector<LinearPart> qkv_parts() {
  return {{"self_attn.q_proj", 0, 4}, {"self_attn.k_proj", 4, 3}, {"self_attn.v_proj", 7, 3}};
}
// What the parts' formulas make of x, part by part.
Tensor by_hand(const Linear& map, const Lora& lora, const Tensor& x, bool dora) {
  const NoGrad guard;
  const Tensor w = map.weight.clone();
  for (const LoraPart& p : lora.parts()) {
    Tensor rows = w.narrow(0, p.of.first, p.of.rows);
    Tensor sum = rows + matmul(p.B, p.A) * p.scale;
    if (dora) sum = sum / sqrt((sum * sum).sum({1}, true)) * p.magnitude.unsqueeze(1);
    rows.copy_(sum);
  }
  return linear(x, w, map.bias);
}

TEST(NamePattern, WholePartsAndOneWildPart) {
  EXPECT_TRUE(is_named("blocks.0.mlp.up.weight", "blocks.0"));
  EXPECT_FALSE(is_named("blocks.01.mlp.up.weight", "blocks.0"));
  EXPECT_TRUE(is_named("blocks.7.attn.qkv", "blocks.*.attn"));
  EXPECT_FALSE(is_named("blocks.7.mlp", "blocks.*.attn"));
  EXPECT_TRUE(is_named("head", "head"));
  EXPECT_FALSE(is_named("head", "ead"));
  EXPECT_FALSE(is_named("head", ""));
  EXPECT_FALSE(is_named("", "head"));
  EXPECT_FALSE(is_named("a", "a.b"));
  EXPECT_EQ(words_of(" q_proj, v_proj\n mlp "), (std::vector<std::string>{"q_proj", "v_proj", "mlp"}));
  EXPECT_TRUE(words_of(" ,").empty());
}

TEST(Lora, BeginsAsNothingAndIsTheFormula) {
  for (const bool dora : {false, true})
    for (const bool bias : {false, true}) {
      manual_seed(3);
      const Linear map(5, 7, bias);
      const Tensor x = randn({2, 3, 5}), before = map(x);
      EXPECT_EQ(add_lora(map, {.rank = 3, .alpha = 6, .dora = dora, .targets = {}}, {{"", {{"up", 0, 7}}}}),
                std::vector<std::string>{"up"});
      expect_close(map(x), before, dora ? 1e-6 : 0);
      const Lora lora = only(adapted_maps(map));
      EXPECT_EQ(lora.parts()[0].scale, 2);
      EXPECT_LE(lora.parts()[0].A.abs().max().item(), 1 / std::sqrt(5.0));
      fill(map);
      expect_close(map(x), by_hand(map, lora, x, dora));
      EXPECT_GT((map(x) - before).abs().max().item(), 0.1);
    }
}

TEST(Lora, PartsOfAFusedMapHaveTheirOwn) {
  for (const bool dora : {false, true}) {
    manual_seed(4);
    const Linear qkv(6, 10);
    const Sequential net(qkv);
    const Tensor x = randn({4, 6}), before = qkv(x);
    const std::vector<std::string> names = add_lora(net,
                                                    {.rank = 2,
                                                     .alpha = 4,
                                                     .rslora = true,
                                                     .dora = dora,
                                                     .targets = {"q_proj", "v_proj"},
                                                     .rank_pattern = {{"v_proj", 3}},
                                                     .alpha_pattern = {{"self_attn.v_proj", 5}}},
                                                    {{"0", qkv_parts()}});
    EXPECT_EQ(names, (std::vector<std::string>{"self_attn.q_proj", "self_attn.v_proj"}));
    const Lora lora = only(adapted_maps(net));
    EXPECT_NEAR(lora.parts()[0].scale, 4 / std::sqrt(2.0), 1e-12);
    EXPECT_NEAR(lora.parts()[1].scale, 5 / std::sqrt(3.0), 1e-12);
    fill(net);
    expect_close(net(x), by_hand(qkv, lora, x, dora));
    EXPECT_TRUE(equal_bits(net(x).narrow(1, 4, 3), before.narrow(1, 4, 3)));  // k has none
    std::vector<std::string> parameters;
    for (const auto& [name, p] : lora_parameters(net)) parameters.push_back(name);
    const std::vector<std::string> plain{"0.lora.q_proj.A", "0.lora.q_proj.B", "0.lora.v_proj.A", "0.lora.v_proj.B"};
    if (!dora) {
      EXPECT_EQ(parameters, plain);
    }
    EXPECT_EQ(parameters.size(), dora ? 6U : 4U);
    EXPECT_TRUE(net.state_dict().contains("0.lora.v_proj.B"));
  }
}

TEST(Lora, FreezesTheBaseAndGradientsAreRight) {
  for (const bool dora : {false, true}) {
    manual_seed(5);
    const Linear map(4, 6);
    add_lora(map, {.rank = 2, .alpha = 3, .dora = dora, .targets = {}}, {{"", {{"a", 0, 2}, {"b", 3, 3}}}});
    fill(map);
    Module(map).to(DType::f64);
    EXPECT_FALSE(map.weight.requires_grad());
    EXPECT_FALSE(map.bias.requires_grad());
    const Lora lora = only(adapted_maps(map));
    TensorList inputs{randn({3, 4}).to(DType::f64).set_requires_grad()};
    for (const auto& [name, p] : lora_parameters(map)) inputs.push_back(p);
    // DoRA's lengths are constants to its gradient: by finite differences they are not. Magnitudes and the input alone
    // are compared then.
    if (dora) {
      inputs = {inputs[0]};
      for (const LoraPart& p : lora.parts()) inputs.push_back(p.magnitude);
    }
    const GradcheckResult r = gradcheck([&](const TensorList& in) { return map(in[0]); }, inputs);
    EXPECT_TRUE(r.ok) << r.report;
    sum(map(inputs[0])).backward();
    EXPECT_FALSE(map.weight.grad().defined());
    EXPECT_TRUE(lora.parts()[1].B.grad().defined());
  }
}

TEST(Lora, MergedEqualsUnmerged) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool dora : {false, true}) {
      manual_seed(6);
      const Linear map(6, 10);
      Module(map).to(dtype);
      const Tensor x = randn({5, 6}).to(dtype), weight = map.weight.clone(), base = map(x);
      add_lora(map, {.rank = 2, .alpha = 1, .dora = dora, .targets = {"q_proj", "v_proj"}}, {{"", qkv_parts()}});
      fill(map);
      const double near = dtype == DType::f32 ? 2e-6 : 0.03;
      const Tensor apart = map(x);
      EXPECT_EQ(apart.dtype(), dtype);
      merge_lora(map);
      EXPECT_TRUE(only(adapted_maps(map)).is_merged());
      expect_close(map(x), apart, near);
      expect_close(map.weight.narrow(0, 4, 3), weight.narrow(0, 4, 3), 0);
      merge_lora(map);  // a second time changes nothing
      expect_close(map(x), apart, near);
      EXPECT_THROW(only(adapted_maps(map)).merge(), ValueError);
      unmerge_lora(map);
      expect_close(map.weight, weight, dtype == DType::f32 ? 1e-6 : 0.02);
      expect_close(map(x), apart, 2 * near);
      EXPECT_THROW(only(adapted_maps(map)).unmerge(), ValueError);
      {
        const WithoutLora off;
        expect_close(map(x), base, near);
      }
      merge_lora(map);
      remove_lora(map);
      EXPECT_TRUE(adapted_maps(map).empty());
      EXPECT_FALSE(map.state_dict().contains("lora.q_proj.A"));
      expect_close(map(x), apart, near);
      add_lora(map, {.targets = {}});  // a new one on top
      expect_close(map(x), apart, near);
    }
}

TEST(Lora, DropoutIsOnTheAdaptersInputInTrainingOnly) {
  manual_seed(7);
  Linear map(64, 8);
  const Tensor x = randn({256, 64}), base = map(x);
  add_lora(map, {.rank = 4, .alpha = 4, .dropout = 0.5, .targets = {}});
  fill(map);
  const RngKey at = default_generator().state();
  const Tensor first = map(x), second = map(x);
  EXPECT_FALSE(equal_bits(first, second));
  default_generator().set_state(at);
  EXPECT_TRUE(equal_bits(map(x), first));
  map.eval();
  const Tensor plain = map(x);
  EXPECT_TRUE(equal_bits(map(x), plain));
  EXPECT_NEAR((first - base).mean().item(), (plain - base).mean().item(), 0.5);
  EXPECT_GT((first - plain).abs().max().item(), 0.1);
  // Of DoRA what the weight makes of the dropped input is scaled: with lengths that are the weight's nothing but the
  // dropped addition is left.
  Linear other(64, 8);
  add_lora(other, {.rank = 4, .alpha = 4, .dropout = 0.5, .dora = true, .targets = {}});
  const Tensor same = other(x);
  other.eval();
  expect_close(same, other(x), 1e-4);
}

TEST(Lora, UnderAutocastAndOnLowWeights) {
  manual_seed(8);
  const Linear map(32, 16);
  const Tensor x = randn({8, 32});
  add_lora(map, {.rank = 4, .alpha = 4, .targets = {}});
  fill(map);
  const Tensor exact = map(x);
  {
    const AutocastScope low;
    const Tensor y = map(x);
    EXPECT_EQ(y.dtype(), DType::bf16);
    expect_close(y, exact, 0.05);
    sum(y).backward();
  }
  const Lora lora = only(adapted_maps(map));
  EXPECT_EQ(lora.parts()[0].A.grad().dtype(), DType::f32);
  EXPECT_FALSE(map.weight.grad().defined());
}

// A module that reads weights of its parts sees that they have adapters.
TEST(Lora, FeedForwardLayersCallWhatHasAdapters) {
  manual_seed(9);
  const FeedForward mlp(8, {.width = 12, .activation = Activation::gelu_tanh});
  const Tensor x = randn({3, 8}), before = mlp(x);
  EXPECT_FALSE(has_forward_hooks(*mlp.up));
  add_lora(mlp, {.rank = 2, .alpha = 2, .targets = {"up"}});
  EXPECT_TRUE(has_forward_hooks(*mlp.up));
  expect_close(mlp(x), before);
  fill(mlp);
  expect_close(mlp(x), (*mlp.down)(gelu((*mlp.up)(x), "tanh")));
  EXPECT_GT((mlp(x) - before).abs().max().item(), 0.01);
  remove_lora(mlp);
  EXPECT_FALSE(has_forward_hooks(*mlp.up));
  expect_close(mlp(x), before);
}

TEST(Lora, PatternsThatNameNothingAndBadPartsAreRefused) {
  const Sequential net(Linear(4, 6), ReLU(), Linear(6, 2));
  EXPECT_THROW(add_lora(net, {.targets = {"q_proj"}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}, .exclude = {"0", "2"}}), ValueError);
  EXPECT_THROW(add_lora(net, {.rank = 0, .targets = {}}), ValueError);
  EXPECT_THROW(add_lora(net, {.alpha = NAN, .targets = {}}), ValueError);
  EXPECT_THROW(add_lora(net, {.dropout = 1, .targets = {}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}, .rank_pattern = {{"2", -1}}}), ValueError);
  // A rank or an alpha for what is not there, or gets no adapter, would have no effect.
  EXPECT_THROW(add_lora(net, {.targets = {}, .rank_pattern = {{"3", 2}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {"0"}, .rank_pattern = {{"2", 2}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}, .alpha_pattern = {{"3", 2.0}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}}, {{"0", {{"q", 0, 3}, {"k", 2, 2}}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}}, {{"0", {{"q", 0, 7}}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}}, {{"0", {{"q", -1, 2}}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}}, {{"0", {{"a.q", 0, 3}, {"b.q", 3, 3}}}}), ValueError);
  EXPECT_THROW(add_lora(net, {.targets = {}}, {{"0", {}}}), ValueError);
  for (const auto& [name, p] : net.named_parameters()) EXPECT_TRUE(p.requires_grad()) << name;  // nothing was changed
  EXPECT_EQ(add_lora(net, {.targets = {"0"}}).size(), 1U);
  EXPECT_THROW(add_lora(net, {.targets = {}}), ValueError);  // "0" has one
  try {
    add_lora(net, {.targets = {"up"}});
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("its maps are named 0, 2"), std::string::npos) << e.what();
  }
  // Its own product reads out_proj's weight.
  EXPECT_TRUE(linear_maps(MultiheadAttention(8, 2)).empty());
  EXPECT_THROW(add_lora(MultiheadAttention(8, 2), {.targets = {}}), ValueError);
}

// Recomputed in backward, dropout included, an adapted map has the gradients that it has without.
TEST(Lora, IsComputedAgainToTheSameGradients) {
  const auto gradients = [](bool again) {
    manual_seed(10);
    const Linear map(8, 8);
    add_lora(map, {.rank = 2, .alpha = 2, .dropout = 0.3, .dora = true, .targets = {}});
    fill(map);
    const Tensor x = randn({4, 8}).set_requires_grad();
    const Tensor y = again ? checkpoint([&](const Tensor& t) { return map(t); }, x) : map(x);
    sum(y * y).backward();
    TensorList all{x.grad()};
    for (const auto& [name, p] : lora_parameters(map)) all.push_back(p.grad());
    return all;
  };
  const TensorList a = gradients(false), b = gradients(true);
  ASSERT_EQ(a.size(), 4U);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(equal_bits(a[i], b[i])) << i;
}

// The base's bytes stay, whatever an optimizer does with what it was given.
TEST(Lora, TrainsWithoutTouchingTheBase) {
  for (const bool dora : {false, true}) {
    manual_seed(11);
    const Sequential net(Linear(6, 16), Tanh(), Linear(16, 3));
    const Tensor x = randn({64, 6}), wanted = randn({64, 3});
    add_lora(net, {.rank = 4, .alpha = 8, .dora = dora, .targets = {}});
    const StateDict before = [&] {
      StateDict all;
      for (const auto& [name, t] : net.state_dict()) all.emplace(name, t.clone());
      return all;
    }();
    optim::AdamW optimizer(lora_parameters(net), {.lr = 0.02, .weight_decay = 0.1});
    double first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      const Tensor d = net(x) - wanted, loss = (d * d).mean();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      (step == 0 ? first : last) = loss.item();
    }
    EXPECT_LT(last, 0.8 * first);
    for (const auto& [name, t] : net.state_dict())
      EXPECT_EQ(equal_bits(t, before.at(name)), name.find("lora") == std::string::npos) << name;
  }
}

TEST(Lora, OfAModelOnTheMetaDeviceHasNoBytes) {
  const DeviceScope dry(Device::meta());
  const Linear map(6, 10);
  add_lora(map, {.rank = 2, .dora = true, .targets = {}}, {{"", qkv_parts()}});
  for (const auto& [name, p] : lora_parameters(map)) EXPECT_TRUE(p.is_meta()) << name;
  EXPECT_EQ(map(empty({3, 6})).shape(), Shape({3, 10}));
}

}  // namespace
}  // namespace strata::nn
