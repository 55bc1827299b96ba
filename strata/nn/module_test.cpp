#include "strata/nn/module.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/memory/allocator.h"
#include "strata/nn/nn.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {
namespace {

struct Net : Module {
  Linear a = register_module("a", Linear(3, 4));
  Dropout dropout = register_module("dropout", Dropout(0.5));
  BatchNorm1d norm = register_module("norm", BatchNorm1d(4));
  Linear b = register_module("b", Linear(4, 2, false));
  Tensor scale = register_parameter("scale", ones({1}));
  Tensor table = register_buffer("table", arange_like(), false);
  Net() : Module("Net") {}
  static Tensor arange_like() { return full({2}, 7.0); }
  Tensor forward(const Tensor& x) const { return b(dropout(norm(a(x)))) * scale; }
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> all;
  for (const auto& [name, t] : tensors) all.push_back(name);
  return all;
}

TEST(Module, NamesInOrderOfRegistration) {
  const Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"scale", "a.weight", "a.bias", "norm.weight", "norm.bias", "b.weight"}));
  EXPECT_EQ(names(net.named_parameters("net")).front(), "net.scale");
  EXPECT_EQ(names(net.named_buffers()),
            (std::vector<std::string>{"table", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
  EXPECT_EQ(net.num_parameters(), 1 + 12 + 4 + 4 + 4 + 8);
  std::vector<std::string> modules;
  for (const auto& [name, m] : net.named_modules()) modules.push_back(name + ":" + m.kind());
  EXPECT_EQ(modules, (std::vector<std::string>{":Net", "a:Linear", "dropout:Dropout", "norm:BatchNorm1d", "b:Linear"}));
}

TEST(Module, ParametersAreLeavesInParameterMemory) {
  const Net net;
  for (const auto& [name, p] : net.named_parameters()) {
    EXPECT_TRUE(p.requires_grad()) << name;
    EXPECT_TRUE(p.is_leaf()) << name;
    EXPECT_EQ(p.storage()->tag, memory::Tag::parameter) << name;
  }
}

TEST(Module, ACopyIsTheSameModule) {
  const Net net;
  Net copy = net;
  EXPECT_TRUE(copy.a.weight.same_as(net.a.weight));
  copy.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_FALSE(net.dropout.is_training());
}

TEST(Module, NamesMustBeNewAndPlain) {
  struct Bad : Module {
    using Module::register_module;
  } m;
  m.register_parameter("w", ones({1}));
  EXPECT_THROW(m.register_parameter("w", ones({1})), ValueError);
  EXPECT_THROW(m.register_buffer("w", ones({1})), ValueError);
  EXPECT_THROW(m.register_module("w", Linear(1, 1)), ValueError);
  EXPECT_THROW(m.register_parameter("a.b", ones({1})), ValueError);
  EXPECT_THROW(m.register_parameter("", ones({1})), ValueError);
  EXPECT_THROW(m.register_parameter("i", ones({1}, DType::i64)), DTypeError);
  EXPECT_FALSE(m.register_parameter("none", Tensor()).defined());
  EXPECT_NE(message<ValueError>([&] { m.parameter("v"); }).find("it has w"), std::string::npos);
}

TEST(Module, SharedParametersAreListedOnce) {
  Module m;
  const Tensor w = m.register_parameter("w", ones({2, 2}));
  m.register_parameter("tied", w);
  EXPECT_EQ(m.parameters().size(), 1u);
  EXPECT_EQ(m.num_parameters(), 4);
  EXPECT_EQ(m.state_dict().size(), 2u);
}

TEST(Module, StateDictRoundTrip) {
  manual_seed(1);
  const Net from;
  manual_seed(2);
  Net to;
  EXPECT_FALSE(equal(from.a.weight, to.a.weight));
  const StateDict state = from.state_dict();
  EXPECT_EQ(state.size(), 9u);
  EXPECT_FALSE(state.contains("table"));
  const LoadReport report = to.load_state_dict(state);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  for (const auto& [name, t] : to.state_dict()) EXPECT_TRUE(equal(t, state.at(name))) << name;
  EXPECT_TRUE(to.a.weight.requires_grad());
}

TEST(Module, LoadRefusesAndChangesNothing) {
  Net net;
  const Tensor before = net.b.weight.detach().clone();
  StateDict state = net.state_dict();
  state.at("b.weight") = full({2, 4}, 3.0);
  StateDict missing = state;
  missing.erase("a.bias");
  missing.emplace("extra", ones({1}));
  const std::string text = message<ValueError>([&] { net.load_state_dict(missing); });
  EXPECT_EQ(text, "Net.load_state_dict: missing a.bias; unexpected extra");
  StateDict wrong = state;
  wrong.at("a.weight") = ones({3, 4});
  EXPECT_NE(message<ShapeError>([&] { net.load_state_dict(wrong); }).find("a.weight is [3, 4] f32, wanted [4, 3] f32"),
            std::string::npos);
  EXPECT_TRUE(equal(net.b.weight, before));
  const LoadReport report = net.load_state_dict(missing, false);
  EXPECT_EQ(report.missing, std::vector<std::string>{"a.bias"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra"});
  EXPECT_EQ(net.b.weight.select(0, 0).select(0, 0).item(), 3);
}

TEST(Module, LoadConvertsDtypes) {
  Net net;
  StateDict state = net.state_dict();
  state.at("scale") = full({1}, 2.5, DType::bf16);
  net.load_state_dict(state);
  EXPECT_EQ(net.scale.dtype(), DType::f32);
  EXPECT_EQ(net.scale.item(), 2.5);
}

TEST(Module, ToConvertsEveryHandle) {
  Net net;
  const Tensor handle = net.a.weight;
  net.to(DType::bf16);
  EXPECT_EQ(handle.dtype(), DType::bf16);
  EXPECT_EQ(net.norm.running_mean.dtype(), DType::bf16);
  EXPECT_EQ(net.norm.num_batches_tracked.dtype(), DType::i64);
  EXPECT_EQ(handle.storage()->tag, memory::Tag::parameter);
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_THROW(net.to(DType::i64), DTypeError);
}

TEST(Module, MetaBuildsWithoutMemory) {
  const auto before = memory::stats(DeviceType::cpu).live_total;
  DeviceScope dry(Device::meta());
  const Linear big(100000, 100000);
  EXPECT_EQ(big.num_parameters(), 100000ll * 100000 + 100000);
  EXPECT_EQ(memory::stats(DeviceType::cpu).live_total, before);
  EXPECT_EQ(big(empty({2, 100000})).shape(), Shape({2, 100000}));
}

TEST(Module, ZeroGradFreezeApply) {
  Net net;
  sum(net.forward(randn({5, 3}))).backward();
  EXPECT_TRUE(net.a.weight.grad().defined());
  net.zero_grad();
  for (const auto& [name, p] : net.named_parameters()) EXPECT_FALSE(p.grad().defined()) << name;
  net.requires_grad(false);
  EXPECT_FALSE(net.forward(randn({5, 3})).requires_grad());
  EXPECT_EQ(net.num_parameters(true), 0);
  std::string seen;
  net.apply([&](Module& m) { seen += m.kind() + " "; });
  EXPECT_EQ(seen, "Linear Dropout BatchNorm1d Linear Net ");
}

TEST(Module, Prints) {
  const Sequential net(Linear(2, 3), ReLU());
  EXPECT_EQ(net.to_string(), "Sequential(\n  (0): Linear(in_features=2, out_features=3)\n  (1): ReLU()\n)\n");
}

TEST(Module, ContainersRegisterByIndex) {
  ModuleList<Linear> list;
  list.push_back(Linear(2, 2));
  list.push_back(Linear(2, 1, false));
  EXPECT_EQ(names(list.named_parameters()), (std::vector<std::string>{"0.weight", "0.bias", "1.weight"}));
  EXPECT_EQ(list.size(), 2u);
  const Sequential net(Linear(3, 2), Tanh(), Linear(2, 1));
  const Tensor x = randn({4, 3});
  EXPECT_EQ(net(x).shape(), Shape({4, 1}));
  EXPECT_EQ(names(net.named_parameters()).back(), "2.bias");
}

// Initialisation: bounds and moments of PyTorch's defaults, and equal seeds giving equal weights.
TEST(Init, Defaults) {
  manual_seed(3);
  const Linear l(100, 400);
  EXPECT_LE(l.weight.abs().max().item(), 0.1);
  EXPECT_GT(l.weight.abs().max().item(), 0.0999);
  EXPECT_NEAR(l.weight.mean().item(), 0, 0.002);
  EXPECT_LE(l.bias.abs().max().item(), 0.1);
  EXPECT_GT(l.bias.abs().max().item(), 0.09);
  const Embedding e(500, 100, 3);
  EXPECT_NEAR((e.weight * e.weight).mean().item(), 1, 0.02);
  EXPECT_EQ(e.weight.select(0, 3).abs().max().item(), 0);
  const Conv2d c(8, 16, 3);
  EXPECT_LE(c.weight.abs().max().item(), 1 / std::sqrt(72.0));
  EXPECT_GT(c.weight.abs().max().item(), 0.98 / std::sqrt(72.0));
  const ConvTranspose2d t(16, 8, 3);
  EXPECT_EQ(t.weight.shape(), Shape({16, 8, 3, 3}));
  EXPECT_LE(t.weight.abs().max().item(), 1 / std::sqrt(72.0));
  const LSTM r(10, 25);
  EXPECT_LE(r.parameter("weight_hh_l0").abs().max().item(), 0.2);
  EXPECT_GT(r.parameter("weight_hh_l0").abs().max().item(), 0.199);
  const MultiheadAttention m(64, 4);
  EXPECT_LE(m.in_proj_weight.abs().max().item(), std::sqrt(6.0 / 256));
  EXPECT_EQ(m.in_proj_bias.abs().max().item(), 0);
  EXPECT_EQ(m.out_proj.bias.abs().max().item(), 0);
  manual_seed(3);
  EXPECT_TRUE(equal(Linear(100, 400).weight, l.weight));
}

TEST(Init, Distributions) {
  Generator g(5);
  const Tensor t = zeros({400, 300});
  init::normal_(t, 1, 2, g);
  EXPECT_NEAR(t.mean().item(), 1, 0.03);
  EXPECT_NEAR(((t - 1.0) * (t - 1.0)).mean().item(), 4, 0.06);
  init::trunc_normal_(t, 0, 1, -1, 0.5, g);
  EXPECT_LE(t.max().item(), 0.5);
  EXPECT_GE(t.min().item(), -1);
  init::kaiming_normal_(t, 0, g);
  EXPECT_NEAR((t * t).mean().item(), 2.0 / 300, 0.0002);
  init::xavier_uniform_(t, 2, g);
  EXPECT_LE(t.abs().max().item(), 2 * std::sqrt(6.0 / 700));
  EXPECT_GT(t.abs().max().item(), 1.999 * std::sqrt(6.0 / 700));
  EXPECT_EQ(init::fans(zeros({8, 4, 3, 3})), (std::pair<int64_t, int64_t>{36, 72}));
  EXPECT_THROW(init::fans(zeros({3})), ShapeError);
}

TEST(Init, SkippedDrawsLeaveMemoryAndMoveTheGenerator) {
  const auto fill = [](const TensorList& all) {
    for (Tensor t : all) t.fill_(7);
    Generator g(5);
    init::uniform_(all[0], 0, 1, g);
    init::normal_(all[1], 0, 1, g);
    init::trunc_normal_(all[2], 0, 1, -1, 1, g);
    init::orthogonal_(all[3], 1, g);
    init::sparse_(all[4], 0.3, 1, g);
    return g.state();
  };
  const auto tensors = [] {
    return TensorList{zeros({33}), zeros({5, 3}), zeros({9}, DType::f64), zeros({3, 7}), zeros({4, 5})};
  };
  const TensorList drawn = tensors(), skipped = tensors();
  const RngKey after = fill(drawn);
  {
    const init::SkipDraws outer;
    { const init::SkipDraws inner; }
    const RngKey moved = fill(skipped);
    EXPECT_EQ(moved.seed, after.seed);
    EXPECT_EQ(moved.offset, after.offset);
    init::ones_(skipped[0]);
  }
  EXPECT_EQ(skipped[0].min().item(), 1);
  for (size_t i = 1; i < skipped.size(); ++i)
    EXPECT_TRUE(equal(skipped[i], full(skipped[i].shape(), 7, skipped[i].dtype()))) << i;
  for (const Tensor& t : drawn) EXPECT_FALSE(equal(t, full(t.shape(), 7, t.dtype())));
  fill(skipped);
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_TRUE(equal(skipped[i], drawn[i])) << i;
}

TEST(Module, ThatMovesForgetsItsAutocastCopies) {
  Linear layer(4, 3);
  AutocastScope scope;
  NoGrad guard;
  layer(ones({1, 4}));
  ASSERT_TRUE(autograd_meta(layer.weight).low.tensor.defined());
  layer.to(DType::f64);
  EXPECT_FALSE(autograd_meta(layer.weight).low.tensor.defined());
}

}  // namespace
}  // namespace strata::nn
