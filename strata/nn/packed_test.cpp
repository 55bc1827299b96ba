// Networks whose linear layers are packed: results, states, gradients, errors of rounding and of GPTQ.
#include "strata/nn/packed.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/nn/attention.h"
#include "strata/nn/container.h"
#include "strata/nn/gptq.h"
#include "strata/nn/hooks.h"
#include "strata/nn/layers.h"
#include "strata/nn/lora.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/nn/transformer.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {
namespace {

struct Net : Module {
  Linear in = register_module("in", Linear(64, 96));
  Linear middle = register_module("middle", Linear(96, 96, false));
  Linear head = register_module("head", Linear(96, 7));
  Tensor forward(const Tensor& x) const { return head(relu(middle(relu(in(x))))); }
};

double distance(const Tensor& a, const Tensor& b) {
  return std::sqrt(((a - b) * (a - b)).sum().item() / (b * b).sum().item());
}

struct Made {
  const char* format;
  PackOptions options;
  double error;
};
const std::vector<Made>& ways() {
  static const std::vector<Made> all = {
      {"int8", {}, 0.01},
      {"int8", {.rounding = {.block_columns = 32, .symmetric = false, .scale_dtype = DType::f16}}, 0.01},
      {"e4m3", {.rounding = {.block_rows = 128, .block_columns = 128}}, 0.04},
      {"int4", {.rounding = {.block_columns = 32}}, 0.13},
      {"int4", {.rounding = {.block_columns = 32, .symmetric = false, .scale_dtype = DType::bf16}}, 0.13},
      {"nf4", {.rounding = {.block_columns = 32, .nested = true}}, 0.13},
      {"q8_0", {}, 0.01},
      {"q4_0", {}, 0.13},
  };
  return all;
}

// Who reads a packed weight by itself asks what runs around the layer: adapters do, the codes' own product does not.
TEST(Packed, HooksAroundAreTold) {
  const nn::Linear linear(64, 8, false);
  EXPECT_FALSE(nn::detail::has_hooks_around(linear));
  nn::pack_linear(linear, quantize_weight(linear.weight, "int8"));
  EXPECT_TRUE(nn::has_forward_hooks(linear));
  EXPECT_FALSE(nn::detail::has_hooks_around(linear));
  nn::ModuleHookHandle hook =
      nn::register_forward_pre_hook(linear, [](const nn::Module&, const Tensor& x) { return x; });
  EXPECT_TRUE(nn::detail::has_hooks_around(linear));
  hook.remove();
  EXPECT_FALSE(nn::detail::has_hooks_around(linear));
  const nn::Lora adapters(linear, {{.of = {"map", 0, 8}, .rank = 2, .alpha = 4}}, {});
  EXPECT_TRUE(nn::detail::has_hooks_around(linear));
}

TEST(Packed, ANetworkComputesWithWhatTheCodesStandFor) {
  for (const Made& way : ways()) {
    manual_seed(1);
    Net net;
    const Tensor x = randn({5, 64}), before = net.forward(x).detach();
    const std::vector<PackedLayer> layers = quantize(net, way.format, way.options);
    ASSERT_EQ(layers.size(), 2U);  // the head stays
    EXPECT_EQ(layers[0].name, "in");
    for (const PackedLayer& l : layers) {
      EXPECT_GT(l.weight_error, 0) << way.format;
      EXPECT_LT(l.weight_error, way.error) << way.format;
    }
    const Tensor after = net.forward(x).detach();
    EXPECT_LT(distance(after, before), 2 * way.error) << way.format;
    EXPECT_GT(distance(after, before), 0) << way.format;
    // The same with the numbers in full.
    const Tensor want = linear(relu(linear(relu(linear(x, dequantize_weight(packed_weight(net.in)), net.in.bias)),
                                           dequantize_weight(packed_weight(net.middle)))),
                               net.head.weight, net.head.bias);
    EXPECT_LT(distance(after, want.detach()), 1e-6) << way.format;
    EXPECT_TRUE(is_packed(net.in) && !is_packed(net.head));
    EXPECT_TRUE(net.in.weight.is_meta());
    EXPECT_EQ(net.in.weight.shape(), Shape({96, 64}));
  }
}

TEST(Packed, AStateLoadsToTheSameLogits) {
  for (const Made& way : ways()) {
    manual_seed(2);
    Net net;
    quantize(net, way.format, way.options);
    const Tensor x = randn({3, 64}), want = net.forward(x).detach();
    const StateDict state = net.state_dict();
    EXPECT_FALSE(state.contains("in.weight"));
    EXPECT_TRUE(state.contains(cat("in.weight.", way.format, ".codes")) && state.contains("in.bias"));
    StateDict again;
    for (const auto& [name, t] : state) again.emplace(name, t.clone());
    Net other;
    pack_from_state(other, again);
    other.load_state_dict(again);
    EXPECT_EQ(other.forward(x).to_vector<float>(), want.to_vector<float>()) << way.format;
    // Into one that is packed already, too.
    Net third;
    quantize(third, way.format, way.options);
    third.load_state_dict(again);
    EXPECT_EQ(third.forward(x).to_vector<float>(), want.to_vector<float>()) << way.format;
  }
}

TEST(Packed, GradientsGoThroughFrozenWeights) {
  manual_seed(3);
  Net net;
  quantize(net, "nf4", {.rounding = {.block_columns = 32, .nested = true}});
  EXPECT_EQ(net.parameters().size(), 3U);  // both biases' and the head's weight
  const Tensor x = randn({4, 64}).set_requires_grad();
  net.forward(x).sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(net.in.bias.grad().defined() && net.head.weight.grad().defined());
  const Tensor y = x.detach().clone().set_requires_grad();
  const Tensor full = linear(relu(linear(relu(linear(y, dequantize_weight(packed_weight(net.in)), net.in.bias)),
                                         dequantize_weight(packed_weight(net.middle)))),
                             net.head.weight, net.head.bias);
  full.sum().backward();
  EXPECT_LT(distance(x.grad(), y.grad()), 1e-5);
}

TEST(Packed, HooksOfALayerRunAroundIt) {
  Net net;
  quantize(net, "int8");
  const Tensor x = randn({2, 64}), plain = net.in(x).detach();
  int before = 0;
  ModuleHookHandle pre = register_forward_pre_hook(net.in, [&](const Module&, const Tensor&) { ++before; });
  ModuleHookHandle post =
      register_forward_hook(net.in, [](const Module&, const Tensor&, const Tensor& y) { return y * 2.0; });
  EXPECT_LT(distance(net.in(x), plain * 2.0), 1e-6);
  EXPECT_EQ(before, 1);
  pre.remove();
  post.remove();
  EXPECT_EQ(net.in(x).to_vector<float>(), plain.to_vector<float>());
}

TEST(Packed, TheFeedForwardOfGptCallsItsLayersWhenTheyArePacked) {
  manual_seed(4);
  FeedForward mlp(64, {.width = 128, .activation = Activation::gelu_tanh});
  const Tensor x = randn({3, 64}), before = mlp.forward(x).detach();
  quantize(mlp, "int8");
  EXPECT_LT(distance(mlp.forward(x).detach(), before), 0.02);
}

TEST(Packed, UnpackedLayersAreLinearAgain) {
  Net net;
  const Tensor x = randn({2, 64});
  quantize(net, "int4", {.rounding = {.block_columns = 32}});
  const Tensor packed = net.forward(x).detach();
  unpack_linear(net.in);
  unpack_linear(net.middle);
  EXPECT_FALSE(is_packed(net.in));
  EXPECT_LT(distance(net.forward(x).detach(), packed), 1e-6);
  EXPECT_FALSE(net.in.weight.requires_grad());
  EXPECT_TRUE(net.state_dict().contains("in.weight"));
}

TEST(Packed, SharedWeightsAndThoseReadByOthersStay) {
  struct Tied : Module {
    Embedding table = register_module("table", Embedding(64, 32));
    Linear out = register_module("out", Linear(32, 64, false));
    MultiheadAttention attention = register_module("attention", MultiheadAttention(32, 2));
    Tied() {
      Linear shared(32, 64, false);
      register_module("other", shared);
      register_module("same", shared);
    }
  };
  Tied net;
  EXPECT_EQ(packable_layers(net), (std::vector<std::string>{"out", "other"}));
  EXPECT_EQ(packable_layers(net, {"out"}), (std::vector<std::string>{"other"}));
}

TEST(Packed, WhatCannotBeIsRefused) {
  Net net;
  const PackedWeight w = quantize_weight(randn({96, 64}), "int8");
  EXPECT_NE(message([&] { pack_linear(net.middle, w); }).find("the packed one [96, 64]"), std::string::npos);
  EXPECT_NE(message([&] { pack_linear(net, w); }).find("wants a Linear"), std::string::npos);
  EXPECT_NE(message([&] { packed_weight(net.in); }).find("is not packed"), std::string::npos);
  EXPECT_NE(message([&] { quantize(net, "nf4", {.rounding = {.block_columns = 64}}); }).find("layer \"middle\""),
            std::string::npos);
  Net other;
  pack_linear(other.in, w);
  StateDict state = other.state_dict();
  state["in.weight.int8.tail"] = zeros({1});
  EXPECT_NE(message([&] { pack_from_state(net, state); }).find("no part \"tail\""), std::string::npos);
  state.erase("in.weight.int8.tail");
  const Tensor blocks = state["in.weight.int8.blocks"];
  state["in.weight.int8.blocks"] = full({3}, 99, DType::i64);
  EXPECT_NE(message([&] { pack_from_state(net, state); }).find("codes of int8 for [96, 99]"), std::string::npos);
  state["in.weight.int8.blocks"] = blocks;
  state["in.weight.int3.blocks"] = blocks;
  EXPECT_NE(message([&] { pack_from_state(net, state); }).find("there is no \"int3\""), std::string::npos);
  state.erase("in.weight.int3.blocks");
  state["gone.weight.int8.blocks"] = blocks;
  EXPECT_NE(message([&] { pack_from_state(net, state); }).find("no layer \"gone\""), std::string::npos);
  // A state of another format does not load, though all sizes are equal.
  Net nf4, int4;
  quantize(nf4, "nf4", {.rounding = {.block_columns = 32}});
  quantize(int4, "int4", {.rounding = {.block_columns = 32}});
  EXPECT_NE(message([&] { int4.load_state_dict(nf4.state_dict()); }).find("in.weight.int4.codes"), std::string::npos);
}

// ---- GPTQ ----

// Inputs with correlations, of which rounding alone knows nothing.
Tensor correlated(int64_t rows, int64_t columns) {
  return matmul(randn({rows, 12}), randn({12, columns})) + randn({rows, columns}) * 0.1;
}

TEST(Gptq, LeavesLessOfTheOutputsErrorThanRounding) {
  for (const char* format : {"int4", "int8"})
    for (const bool act_order : {false, true})
      for (const bool symmetric : {true, false})
        for (const int64_t group : {int64_t{0}, int64_t{32}, int64_t{160}}) {
          manual_seed(6);
          const Tensor w = randn({24, 300}), x = correlated(400, 300), h = matmul(x.t(), x);
          const GptqOptions o{.group_size = group, .symmetric = symmetric, .act_order = act_order};
          const PackedWeight chosen = gptq_weight(w, h, format, o);
          const PackedWeight rounded = quantize_weight(w, format, {.block_columns = group, .symmetric = symmetric});
          EXPECT_EQ(chosen.order.defined(), act_order);
          const double by_gptq = output_error(w, dequantize_weight(chosen), h),
                       by_rounding = output_error(w, dequantize_weight(rounded), h);
          EXPECT_LT(by_gptq, 0.7 * by_rounding) << format << " group " << group << " order " << act_order;
          // output_error is what it says.
          const Tensor y = linear(x, w), z = linear(x, dequantize_weight(chosen));
          EXPECT_NEAR(by_gptq, distance(z, y), 1e-3 * by_gptq + 1e-6);
        }
}

// The paper's algorithm as written, in double: one column after the other, the whole inverse updated by elimination.
std::vector<double> by_the_paper(const std::vector<double>& w_in, std::vector<double> h, int64_t n, int64_t k,
                                 double damp, const std::vector<double>& scale) {
  std::vector<double> w = w_in, out(w.size());
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += h[static_cast<size_t>(i * k + i)] / static_cast<double>(k);
  for (int64_t i = 0; i < k; ++i) h[static_cast<size_t>(i * k + i)] += damp * mean;
  // Inverse by Gauss and Jordan.
  std::vector<double> inverse(h.size(), 0.0);
  const auto at = [k](std::vector<double>& m, int64_t r, int64_t c) -> double& {
    return m[static_cast<size_t>(r * k + c)];
  };
  for (int64_t i = 0; i < k; ++i) at(inverse, i, i) = 1;
  for (int64_t p = 0; p < k; ++p) {
    const double pivot = at(h, p, p);
    for (int64_t c = 0; c < k; ++c) at(h, p, c) /= pivot, at(inverse, p, c) /= pivot;
    for (int64_t r = 0; r < k; ++r) {
      const double factor = at(h, r, p);
      if (r == p || factor == 0) continue;
      for (int64_t c = 0; c < k; ++c)
        at(h, r, c) -= factor * at(h, p, c), at(inverse, r, c) -= factor * at(inverse, p, c);
    }
  }
  for (int64_t c = 0; c < k; ++c) {
    for (int64_t r = 0; r < n; ++r) {
      double& v = w[static_cast<size_t>(r * k + c)];
      const double s = scale[static_cast<size_t>(r)];
      const double q = std::clamp(std::nearbyint(v / s), -8.0, 7.0) * s;
      out[static_cast<size_t>(r * k + c)] = q;
      const double error = (v - q) / at(inverse, c, c);
      for (int64_t j = c; j < k; ++j) w[static_cast<size_t>(r * k + j)] -= error * at(inverse, c, j);
    }
    // Row and column c leave the inverse.
    const std::vector<double> row(inverse.begin() + c * k, inverse.begin() + (c + 1) * k);
    for (int64_t i = c + 1; i < k; ++i)
      for (int64_t j = c + 1; j < k; ++j)
        at(inverse, i, j) -= row[static_cast<size_t>(i)] * row[static_cast<size_t>(j)] / row[static_cast<size_t>(c)];
  }
  return out;
}

TEST(Gptq, TakesTheCodesOfThePapersAlgorithm) {
  manual_seed(7);
  const int64_t n = 6, k = 160;  // more than a block of columns
  const Tensor w = randn({n, k}), x = correlated(300, k), h = matmul(x.t(), x);
  const PackedWeight chosen = gptq_weight(w, h, "int4", {.group_size = 0, .damp = 0.05});
  std::vector<double> scale;
  for (const float s : chosen.scales.to_vector<float>()) scale.push_back(s);
  const std::vector<double> want =
      by_the_paper(w.to(DType::f64).to_vector<double>(), h.to(DType::f64).to_vector<double>(), n, k, 0.05, scale);
  const std::vector<float> got = dequantize_weight(chosen).to_vector<float>();
  int64_t equal = 0;
  for (size_t i = 0; i < want.size(); ++i) equal += std::fabs(got[i] - want[i]) < 1e-4;
  EXPECT_GE(equal, n * k - 2);  // but for a tie that rounding decides
}

TEST(Gptq, OfANetworkTakesLessErrorAndPassesAgainForWhatDoesNotFit) {
  for (const int64_t room : {int64_t{1} << 30, int64_t{1}}) {
    manual_seed(8);
    Net net;
    const Tensor x = correlated(256, 64), before = net.forward(x).detach();
    const StateDict state = net.state_dict();
    std::map<std::string, Tensor> kept;
    for (const auto& [name, t] : state) kept.emplace(name, t.clone());
    int passes = 0;
    const std::vector<PackedLayer> layers = gptq(net, "int4", {.group_size = 32, .hessian_bytes = room}, [&] {
      ++passes;
      net.forward(x);
    });
    EXPECT_EQ(passes, room == 1 ? 2 : 1);
    ASSERT_EQ(layers.size(), 2U);
    EXPECT_GT(layers[1].output_error, 0);
    const double by_gptq = distance(net.forward(x).detach(), before);
    Net other;
    other.load_state_dict(kept);
    quantize(other, "int4", {.rounding = {.block_columns = 32}});
    EXPECT_LT(by_gptq, distance(other.forward(x).detach(), before));
  }
}

TEST(Gptq, WhatCannotBeIsRefused) {
  const Tensor w = randn({4, 64}), h = eye(64);
  EXPECT_NE(message([&] { gptq_weight(w, h, "nf4"); }).find("makes int4 and int8"), std::string::npos);
  EXPECT_NE(message([&] { gptq_weight(w, eye(32), "int4"); }).find("sums [columns, columns]"), std::string::npos);
  EXPECT_NE(message([&] { gptq_weight(w, h * -1.0, "int4"); }).find("no inverse"), std::string::npos);
  EXPECT_NE(message([&] { gptq_weight(w, h, "int4", {.group_size = 20}); }).find("multiple of 32"), std::string::npos);
  EXPECT_NE(message([&] { gptq_weight(w, h * NAN, "int4"); }).find("are not finite"), std::string::npos);
  Net net;
  EXPECT_NE(message([&] { gptq(net, "int4", {.group_size = 32}, [] {}); }).find("gave the layer \"in\" nothing"),
            std::string::npos);
  EXPECT_FALSE(is_packed(net.in));
  // A column that no input reaches becomes zero.
  Tensor seen = eye(64);
  seen.select(0, 5).zero_();
  const std::vector<float> got = dequantize_weight(gptq_weight(w, seen, "int4")).to_vector<float>();
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(got[static_cast<size_t>(r * 64 + 5)], 0);
}

}  // namespace
}  // namespace strata::nn
