// Adapters of experts against their formula, row by row in f64, and what they do to the layer and its tree.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/dist/rank_threads.h"
#include "strata/nn/container.h"
#include "strata/nn/experts.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/lora.h"
#include "strata/ops/ops.h"

namespace strata::nn {
namespace {

constexpr int64_t kDim = 7, kWidth = 5;  // odd

Experts make(int64_t count, int64_t per_token = 2, double capacity = 0) {
  manual_seed(3);
  return {kDim,
          {.count = count, .per_token = per_token, .width = kWidth, .normalise = true, .capacity = capacity},
          Activation::silu};
}
// B begins at zero, where an adapter adds nothing.
void fill(const Module& root) {
  for (auto& [name, p] : lora_parameters(root))
    if (name.ends_with(".B")) init::normal_(p, 0, 0.5);
}
LinearParts parts() {
  return {{"gate_up",
           {{"mlp.experts.gate_up_proj", 0, 2 * kWidth},
            {"mlp.experts.*.gate_proj", 0, kWidth},
            {"mlp.experts.*.up_proj", kWidth, kWidth}}},
          {"down", {{"mlp.experts.down_proj", 0, kDim}, {"mlp.experts.*.down_proj", 0, kDim}}}};
}
double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  return a.numel() == 0 ? 0 : (a.to(DType::f64) - b.to(DType::f64)).abs().max().item();
}
// The layer in f64 with what the formula adds to each expert's matrix.
Experts summed(const Experts& m) {
  const NoGrad guard;
  Experts sum(kDim, m.spec(), Activation::silu);
  sum.to(DType::f64);
  sum.router.copy_(m.router);
  sum.gate_up.copy_(m.gate_up);
  sum.down.copy_(m.down);
  for (const AdaptedMap& a : adapted_maps(m))
    for (const LoraPart& p : a.lora.parts())
      for (int64_t e = 0; e < m.spec().count; ++e) {
        Tensor rows = (a.weight == "down" ? sum.down : sum.gate_up).detach()[e].narrow(0, p.of.first, p.of.rows);
        rows.add_(matmul(p.B[e].to(DType::f64), p.A[e].to(DType::f64)) * p.scale);
      }
  sum.train(m.is_training());
  return sum;
}

TEST(ExpertLora, BeginsAsNothingAndIsTheFormulaInDouble) {
  struct Way {
    std::vector<std::string> targets, adapted;
  };
  for (const Way& way : std::vector<Way>{
           {{"experts"}, {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}},
           {{"experts.down_proj"}, {"mlp.experts.down_proj"}},
           {{"experts.*"}, {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}},
           {{"experts.*.up_proj", "experts.*.down_proj"}, {"mlp.experts.*.up_proj", "mlp.experts.*.down_proj"}},
           {{"experts.*.gate_proj", "experts.*.up_proj"}, {"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj"}}})
    for (const int64_t count : {2, 5, 40})  // of 40 most have no rows
      for (const double capacity : {0.0, 0.6}) {
        const Experts m = make(count, 2, capacity);
        const Tensor x = randn({3, 4, kDim}), before = m(x);
        EXPECT_EQ(add_lora(m,
                           {.rank = 3,
                            .alpha = 5,
                            .rslora = count == 5,
                            .targets = way.targets,
                            .rank_pattern = {{way.adapted.back(), 2}},
                            .alpha_pattern = {{way.adapted.back(), 7}}},
                           parts()),
                  way.adapted);
        EXPECT_EQ(distance(m(x), before), 0);
        const LoraPart& first = adapted_maps(m)[0].lora.parts()[0];
        EXPECT_LE(first.A.abs().max().item(), 1 / std::sqrt(static_cast<double>(first.A.size(2))));
        EXPECT_GT(first.A.abs().max().item(), 0.2 / std::sqrt(static_cast<double>(first.A.size(2))));
        fill(m);
        const Tensor y = m(x), want = summed(m)(x.to(DType::f64));
        EXPECT_GT(distance(y, before), 0.01);
        EXPECT_LE(distance(y, want), 2e-6 * std::max(1.0, want.abs().max().item()));
        EXPECT_EQ(m(zeros({0, kDim})).shape(), (Shape{0, kDim}));
        const WithoutLora off;
        EXPECT_EQ(distance(m(x), before), 0);
      }
}

TEST(ExpertLora, RowsOfEachExpertGoThroughItsOwn) {
  manual_seed(4);
  const Experts m = make(4);
  add_lora(m, {.rank = 2, .alpha = 3, .targets = {"experts.down_proj"}}, parts());
  fill(m);
  const Lora lora = adapted_maps(m).at(0).lora;
  const LoraPart& p = lora.parts()[0];
  EXPECT_EQ(p.A.shape(), (Shape{4, 2, kWidth}));
  EXPECT_EQ(p.B.shape(), (Shape{4, kDim, 2}));
  const Tensor x = randn({6, kWidth}), y = randn({6, kDim});
  const Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 0, 4, 4, 6}, {5});  // the first and third: none
  const Tensor z = lora.forward(x, y, offsets);
  for (int64_t n = 0; n < 6; ++n) {
    const int64_t e = n < 4 ? 1 : 3;
    const Tensor want = y[n].to(DType::f64) +
                        matmul(p.B[e].to(DType::f64), matmul(p.A[e].to(DType::f64), x[n].to(DType::f64))) * p.scale;
    EXPECT_LE(distance(z[n], want), 1e-6);
  }
  EXPECT_THROW(lora.forward(x, y), ValueError);
}

TEST(ExpertLora, GradientsAreRightAndTheBaseGetsNone) {
  for (const bool halves : {false, true})
    for (const double capacity : {0.0, 0.5}) {
      const Experts m = make(5, 2, capacity);
      LoraOptions o{.rank = 2, .alpha = 3, .targets = {"experts"}};
      if (halves) o.targets = {"experts.*.gate_proj", "experts.*.up_proj", "experts.*.down_proj"};
      add_lora(m, o, parts());
      fill(m);
      Module(m).to(DType::f64);
      TensorList inputs{randn({2, 3, kDim}, DType::f64).set_requires_grad()};
      for (const auto& [name, p] : lora_parameters(m)) inputs.push_back(p);
      EXPECT_EQ(inputs.size(), halves ? 7U : 5U);
      const GradcheckResult r = gradcheck([&](const TensorList& in) { return m(in[0]); }, inputs);
      EXPECT_TRUE(r.ok) << r.report;
      sum(m(inputs[0])).backward();
      for (const auto& [name, p] : m.named_parameters()) {
        const bool own = name.find("lora_") != std::string::npos;
        EXPECT_EQ(p.requires_grad(), own) << name;
        EXPECT_EQ(p.grad().defined(), own) << name;
      }
    }
}

// An expert without rows gets a gradient of zeros: its adapter stays as it was.
TEST(ExpertLora, ExpertsWithoutRowsGetZeros) {
  const Experts m = make(30, 1);
  add_lora(m, {.rank = 2, .targets = {"experts"}}, parts());
  fill(m);
  sum(m(randn({1, 2, kDim}))).backward();
  const Tensor g = adapted_maps(m)[1].lora.parts()[0].B.grad().abs().sum({1, 2});
  const std::vector<double> of = g.to_vector<double>();
  EXPECT_GE(std::ranges::count(of, 0.0), 28);
  EXPECT_LT(std::ranges::count(of, 0.0), 30);
}

TEST(ExpertLora, MergedEqualsUnmergedAndIsTakenOff) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Experts m = make(4);
    Module(m).to(dtype);
    const Tensor x = randn({2, 5, kDim}).to(dtype), up = m.gate_up.clone(), down = m.down.clone(), base = m(x);
    add_lora(m, {.rank = 2, .alpha = 2, .targets = {"experts.*.up_proj", "experts.down_proj"}}, parts());
    fill(m);
    const Tensor apart = m(x);
    EXPECT_EQ(apart.dtype(), dtype);
    const double near = dtype == DType::f32 ? 3e-6 : 0.05;
    EXPECT_GT(distance(apart, base), near);
    merge_lora(m);
    EXPECT_LE(distance(m(x), apart), near);
    EXPECT_EQ(distance(m.gate_up.narrow(1, 0, kWidth), up.narrow(1, 0, kWidth)), 0);  // gate has none
    EXPECT_GT(distance(m.gate_up, up), near);
    EXPECT_THROW(adapted_maps(m)[0].lora.merge(), ValueError);
    unmerge_lora(m);
    EXPECT_LE(distance(m.gate_up, up), near);
    EXPECT_LE(distance(m.down, down), near);
    EXPECT_LE(distance(m(x), apart), 2 * near);
    merge_lora(m);
    remove_lora(m);
    EXPECT_TRUE(adapted_maps(m).empty());
    EXPECT_EQ(m.named_parameters().size(), 3U);
    EXPECT_LE(distance(m(x), apart), near);
    add_lora(m, {.targets = {"experts"}}, parts());  // new ones on top
    EXPECT_LE(distance(m(x), apart), near);
    remove_lora(m);
    EXPECT_LE(distance(m(x), apart), near);
    EXPECT_FALSE(has_forward_hooks(m));
  }
}

TEST(ExpertLora, InATreeBesideLinearMapsByTheWordExpertsAlone) {
  manual_seed(6);
  struct Net : Module {
    Net() : Module("Net") {}
    Linear q = register_module("q", Linear(kDim, kDim));
    Experts experts = register_module(
        "experts", Experts(kDim, {.count = 3, .per_token = 1, .width = kWidth, .shared_width = 4}, Activation::silu));
  };
  const auto adapted = [](LoraOptions o) {
    const Net net;
    const std::vector<std::string> names = add_lora(net, o);
    EXPECT_EQ(adapted_maps(net).size(), names.size());
    return names;
  };
  using Names = std::vector<std::string>;
  const Names linear{"q", "experts.shared_gate_up", "experts.shared_down"};
  EXPECT_EQ(adapted({.targets = {}}), linear);
  EXPECT_EQ(adapted({.targets = {"q", "shared_gate_up", "shared_down"}}), linear);
  EXPECT_EQ(adapted({.targets = {"experts.gate_up"}}), Names{"experts.gate_up"});
  EXPECT_EQ(adapted({.targets = {"experts"}, .exclude = {"shared_gate_up", "gate_up"}}),
            (Names{"experts.shared_down", "experts.down"}));
  const Net net;
  EXPECT_NE(message<ValueError>([&] {
              add_lora(net, {.targets = {"gate_up"}});
            }).find("its maps are named experts.down, experts.gate_up, q, shared_down, shared_gate_up"),
            std::string::npos);
  EXPECT_TRUE(net.q.weight.requires_grad());
  add_lora(net, {.rank = 2, .targets = {"q", "experts.down"}});
  Names names;
  for (const auto& [name, p] : lora_parameters(net)) names.push_back(name);
  EXPECT_EQ(names, (Names{"q.lora.q.A", "q.lora.q.B", "experts.lora_down.down.A", "experts.lora_down.down.B"}));
  const StateDict state = net.state_dict();
  for (const std::string& name : names) EXPECT_TRUE(state.contains(name)) << name;
  EXPECT_EQ(adapted_maps(net)[1].weight_name(), "experts.down");
  EXPECT_EQ(adapted_maps(net)[0].weight_name(), "q.weight");
}

TEST(ExpertLora, DropoutIsInTrainingOnly) {
  const Experts m = make(4);
  add_lora(m, {.rank = 2, .dropout = 0.5, .targets = {"experts"}}, parts());
  fill(m);
  const Tensor x = randn({4, kDim});
  EXPECT_GT(distance(m(x), m(x)), 0);
  Module(m).eval();
  EXPECT_EQ(distance(m(x), m(x)), 0);
  EXPECT_LE(distance(m(x), summed(m)(x.to(DType::f64))), 3e-6);
}

TEST(ExpertLora, UnderAutocastItIsComputedInSixteenBits) {
  const Experts m = make(4);
  add_lora(m, {.rank = 2, .targets = {"experts"}}, parts());
  fill(m);
  const Tensor x = randn({5, kDim}), want = m(x);
  const AutocastScope low(DType::bf16);
  const Tensor y = m(x);
  EXPECT_GT(distance(y, want), 0);
  EXPECT_LE(distance(y, want), 0.05 * std::max(1.0, want.abs().max().item()));
  sum(y.to(DType::f32)).backward();
  EXPECT_TRUE(adapted_maps(m)[0].lora.parts()[0].B.grad().defined());
}

TEST(ExpertLora, WhatItIsNotForIsRefused) {
  const Experts m = make(4);
  const auto said = [&](const std::function<void()>& f) { return message<ValueError>(f); };
  EXPECT_NE(said([&] { add_lora(m, {.dora = true, .targets = {"experts"}}, parts()); }).find("'gate_up' out"),
            std::string::npos);
  EXPECT_TRUE(m.down.requires_grad());  // nothing was changed
  const LoraPart whole{.of = {"down", 0, kDim}, .rank = 2, .alpha = 2, .A = {}, .B = {}, .magnitude = {}};
  EXPECT_NE(said([&] { Lora(m, {whole}, {.dora = true}, "down"); }).find("learned lengths"), std::string::npos);
  EXPECT_NE(said([&] { Lora(m, {whole}, {}, "router"); }).find("named 'router'"), std::string::npos);
  EXPECT_NE(said([&] { Lora(m, {whole}, {}); }).find("named ''"), std::string::npos);
  LoraPart past = whole;
  past.of.rows = kDim + 1;
  EXPECT_NE(said([&] { Lora(m, {past}, {}, "down"); }).find("which has 7"), std::string::npos);
  EXPECT_NE(said([&] {
              add_lora(m, {.targets = {"experts"}}, {{"down", {past.of}}});
            }).find("which has 7"),
            std::string::npos);
  EXPECT_NE(said([&] { add_lora(m, {.targets = {"experts.3.down_proj"}}, parts()); }).find("experts.*.down_proj"),
            std::string::npos);
  add_lora(m, {.targets = {"experts"}}, parts());
  EXPECT_NE(said([&] { add_lora(m, {.targets = {"experts"}}, parts()); }).find("has adapters already"),
            std::string::npos);
  distributed::run_as_ranks(distributed::Mesh("ep=2"), [](int) {
    const Experts shared = make(4), own = make(4);
    add_lora(own, {.targets = {"experts"}}, parts());
    EXPECT_THROW(Experts(own).spread("ep"), ValueError);
    Experts(shared).spread("ep");
    EXPECT_THROW(add_lora(shared, {.targets = {"experts"}}, parts()), ValueError);
  });
}

}  // namespace
}  // namespace strata::nn
