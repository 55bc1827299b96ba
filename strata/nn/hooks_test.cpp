// Hooks around modules, and modules that find their sizes at the first call.

#include "strata/nn/hooks.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/nn/container.h"
#include "strata/nn/layers.h"
#include "strata/nn/lazy.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {
namespace {

std::vector<float> values(const Tensor& t) {
  return t.to_vector<float>();
}
// y = 2 x.
Linear doubling() {
  Linear layer(1, 1, false);
  const NoGrad guard;
  layer.weight.fill_(2);
  return layer;
}
Tensor column(const std::vector<float>& v) {
  return from_span<float>(v, {static_cast<int64_t>(v.size()), 1});
}

TEST(ModuleHooks, SeeAndReplaceInputAndOutput) {
  const Linear layer = doubling();
  const Sequential net(layer, Identity());
  const Tensor x = column({1, 3});
  std::vector<std::string> order;
  ModuleHookHandle see = register_forward_pre_hook(layer, [&](const Module& m, const Tensor& in) {
    order.push_back(m.kind());
    EXPECT_EQ(values(in), std::vector<float>({1, 3}));
  });
  ModuleHookHandle shift = register_forward_pre_hook(layer, [](const Module&, const Tensor& in) { return in + 1; });
  ModuleHookHandle negate = register_forward_hook(layer, [&](const Module&, const Tensor& in, const Tensor& out) {
    order.push_back("after");
    EXPECT_EQ(values(in), std::vector<float>({2, 4}));
    return -out;
  });
  EXPECT_EQ(values(net(x)), std::vector<float>({-4, -8}));  // through another handle
  EXPECT_EQ(order, std::vector<std::string>({"Linear", "after"}));
  shift.remove();
  negate.remove();
  EXPECT_EQ(values(net(x)), std::vector<float>({2, 6}));
  see.remove();
  see.remove();
  EXPECT_EQ(values(layer(x)), std::vector<float>({2, 6}));
  EXPECT_EQ(order.size(), 3u);
  EXPECT_EQ(values(layer.forward(x)), std::vector<float>({2, 6}));
}

TEST(ModuleHooks, SeeAndReplaceGradients) {
  const Linear layer = doubling();
  Tensor x = column({1, 3});
  x.set_requires_grad();
  int calls = 0;
  ModuleHookHandle h = register_full_backward_hook(layer, [&](const Module&, const Tensor& in, const Tensor& out) {
    ++calls;
    EXPECT_EQ(values(in), std::vector<float>({10, 10}));
    EXPECT_EQ(values(out), std::vector<float>({5, 5}));
    return in * 100;
  });
  const Tensor y = layer(x);
  sum(y * 5 + x).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(values(x.grad()), std::vector<float>({1001, 1001}));  // what x gets elsewhere is no gradient of the module
  EXPECT_EQ(values(layer.weight.grad()), std::vector<float>({20}));
  {
    const NoGrad guard;
    layer(x);
  }
  h.remove();
  sum(layer(x)).backward();
  EXPECT_EQ(calls, 1);

  // An input without a gradient: the hook runs when the output's is known.
  bool seen = false;
  ModuleHookHandle last = register_full_backward_hook(
      layer, [&](const Module&, const Tensor& in, const Tensor& out) { seen = !in.defined() && out.defined(); });
  sum(layer(column({1}))).backward();
  EXPECT_TRUE(seen);
  last.remove();
}

TEST(ModuleHooks, MayRemoveThemselves) {
  const Linear layer = doubling();
  int calls = 0;
  ModuleHookHandle h;
  h = register_forward_pre_hook(layer, [&](const Module&, const Tensor&) {
    ++calls;
    h.remove();
  });
  layer(column({1}));
  layer(column({1}));
  EXPECT_EQ(calls, 1);
}

TEST(LazyModules, FindTheirSizes) {
  manual_seed(6);
  Sequential net(LazyConv2d(4, 3), LazyBatchNorm2d(), Flatten(), LazyLinear(5));
  EXPECT_TRUE(net.parameters().empty());
  const Tensor y = net(randn({2, 3, 6, 6}));
  EXPECT_EQ(y.shape(), Shape({2, 5}));
  std::vector<std::string> names;
  for (const auto& [name, t] : net.state_dict()) names.push_back(name);
  EXPECT_EQ(names, std::vector<std::string>({"0.bias", "0.weight", "1.bias", "1.num_batches_tracked", "1.running_mean",
                                             "1.running_var", "1.weight", "3.bias", "3.weight"}));
  EXPECT_EQ(net.child("3").parameter("weight").shape(), Shape({5, 64}));
  sum(y).backward();
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.grad().defined());
  // The mode is the lazy module's: in evaluation the statistics stay.
  net.eval();
  const std::vector<float> before = values(net.child("1").buffer("running_mean"));
  net(randn({2, 3, 6, 6}));
  EXPECT_EQ(values(net.child("1").buffer("running_mean")), before);
  EXPECT_THROW(net(randn({2, 4, 6, 6})), ShapeError);
  EXPECT_THROW(LazyLinear(3)(full({}, 1.0)), ShapeError);
  EXPECT_THROW(LazyLinear(3).layer(), ValueError);
}

}  // namespace
}  // namespace strata::nn
