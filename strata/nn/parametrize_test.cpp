// Parameters computed from others: the machinery.

#include "strata/nn/parametrize.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/checkpoint.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/nn/container.h"
#include "strata/nn/conv.h"
#include "strata/nn/hooks.h"
#include "strata/nn/layers.h"
#include "strata/nn/parametrize_test_util.h"
#include "strata/nn/rnn.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/sgd/sgd.h"

namespace strata::nn {
namespace {

std::vector<std::string> names(const NamedTensors& all) {
  std::vector<std::string> list;
  for (const auto& [name, t] : all) list.push_back(name);
  return list;
}
std::vector<std::string> names(const StateDict& all) {
  return names(NamedTensors(all.begin(), all.end()));
}
using Names = std::vector<std::string>;

// exp(x), with its inverse; and 2 x, which has none.
struct Exp final : Parametrization {
  Exp() : Parametrization("Exp") {}
  Tensor forward(const TensorList& x) override {
    ++calls;
    return exp(x[0]);
  }
  TensorList right_inverse(const Tensor& value) override { return {log(value)}; }
  int calls = 0;
};
struct Twice final : Parametrization {
  Twice() : Parametrization("Twice") {}
  Tensor forward(const TensorList& x) override { return x[0] * 2; }
};
struct Row final : Parametrization {
  Row() : Parametrization("Row") {}
  Tensor forward(const TensorList& x) override { return x[0].narrow(0, 0, 1); }
};
struct Single final : Parametrization {
  Single() : Parametrization("Single") {}
  Tensor forward(const TensorList& x) override { return x[0].to(DType::f32); }
};

TEST(Parametrize, ComputesTheParameterThatTheLayerReads) {
  manual_seed(1);
  const Linear layer = linear64(3, 2);
  const Tensor before = layer.weight.detach().clone(), x = data({4, 3});
  const Linear copy = layer;  // another handle
  register_parametrization(layer, "weight", std::make_shared<Twice>());
  EXPECT_TRUE(is_parametrized(layer) && is_parametrized(copy, "weight") && !is_parametrized(layer, "bias"));
  EXPECT_EQ(names(layer.named_parameters()), Names({"bias", "parametrizations.weight.original"}));
  EXPECT_EQ(distance(copy.weight, before * 2), 0);
  const Tensor y = Sequential(copy)(x);
  EXPECT_LT(distance(y, matmul(x, before.t()) * 2 + layer.bias), 1e-14);
  sum(y).backward();
  const Tensor original = parametrizations_of(layer, "weight").originals()[0];
  EXPECT_LT(distance(original.grad(), sum(x, {0}) * 2 + zeros_like(original)), 1e-14);
  EXPECT_FALSE(layer.weight.is_leaf());
  {
    const NoGrad guard;
    Tensor(original).fill_(1);
    EXPECT_LT(distance(copy(x), sum(x, {1}, true) * 2 + layer.bias), 1e-13);
  }
  // Frozen originals: no gradient is wanted of the weight.
  Linear(layer).requires_grad(false);
  EXPECT_FALSE(layer(x).requires_grad());
}

// n x in the n-th call.
struct Growing final : Parametrization {
  Growing() : Parametrization("Growing") {}
  Tensor forward(const TensorList& x) override { return x[0] * static_cast<double>(++calls); }
  int calls = 0;
};

TEST(Parametrize, CallsBeforeOneBackwardKeepTheirOwnValues) {
  manual_seed(2);
  const Linear layer = linear64(3, 2, false);
  const Tensor w = layer.weight.detach().clone();
  register_parametrization(layer, "weight", std::make_shared<Growing>());  // computes it once
  const Tensor original = parametrizations_of(layer, "weight").originals()[0];
  Tensor x = data({1, 3}).set_requires_grad();
  const Tensor a = sum(layer(x));
  const Tensor b = sum(layer(x));
  (a + b).backward();
  EXPECT_LT(distance(x.grad(), sum(w, {0}, true) * 5), 1e-14);
  EXPECT_LT(distance(original.grad(), x.detach() * 5 + zeros_like(w)), 1e-14);
  // The same where the weight wants no gradient: the input's still reads it.
  Linear(layer).requires_grad(false);
  x.set_grad({});
  const Tensor c = sum(layer(x));
  const Tensor d = sum(layer(x));
  (c + d).backward();
  EXPECT_LT(distance(x.grad(), sum(w, {0}, true) * 9), 1e-14);
  // And one after the other, as a discriminator has them.
  Linear(layer).requires_grad(true);
  Linear(layer).zero_grad();
  sum(layer(x)).backward();
  sum(layer(x)).backward();
  EXPECT_LT(distance(original.grad(), x.detach() * 13 + zeros_like(w)), 1e-13);
}

TEST(Parametrize, ChainsAndAssigns) {
  manual_seed(3);
  const Linear layer = linear64(3, 2);
  const NoGrad guard;
  Tensor(layer.weight).copy_(exp(data({2, 3})));
  const Tensor before = layer.weight.detach().clone();
  const auto first = std::make_shared<Exp>(), second = std::make_shared<Exp>();
  register_parametrization(layer, "weight", first);
  const ParametrizationList list = parametrizations_of(layer, "weight");
  EXPECT_LT(distance(list(), before), 1e-14);
  EXPECT_LT(distance(list.originals()[0], log(before)), 1e-14);
  list.assign(before + 2);
  EXPECT_LT(distance(list.forward(), before + 2), 1e-13);
  register_parametrization(layer, "weight", second);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_LT(distance(list(), before + 2), 1e-13);
  EXPECT_LT(distance(layer.weight, before + 2), 1e-13);
  EXPECT_LT(distance(list.originals()[0], log(log(before + 2))), 1e-13);
  EXPECT_EQ(names(layer.child("parametrizations").child("weight").named_children()[1].second.state_dict()), Names());
  EXPECT_EQ(message<ShapeError>([&] {
              list.assign(ones({2, 2}, DType::f64));
            }).substr(0, 26),
            "ParametrizationList.assign");
  register_parametrization(layer, "weight", std::make_shared<Twice>());
  EXPECT_LT(distance(list(), (before + 2) * 2), 1e-13);
  EXPECT_NE(message<ValueError>([&] { list.assign(before); }).find("Twice has no right_inverse()"), std::string::npos);
}

TEST(Parametrize, CachedScopesComputeOnce) {
  const Linear layer = linear64(2, 2);
  {
    const NoGrad guard;
    Tensor(layer.weight).fill_(1);
  }
  const auto p = std::make_shared<Exp>();
  register_parametrization(layer, "weight", p);
  const int before = p->calls;
  const Tensor x = data({1, 2});
  {
    const CachedParametrizations once;
    const Tensor y = layer(x);
    {
      const CachedParametrizations inner;
      layer(x);
    }
    sum(y + layer(x)).backward();
    EXPECT_EQ(p->calls, before + 1);
  }
  EXPECT_LT(distance(parametrizations_of(layer, "weight").originals()[0].grad(),
                     (x * 2 + zeros({2, 2}, DType::f64)) * layer.weight),
            1e-14);
  layer(x);
  layer(x);
  EXPECT_EQ(p->calls, before + 3);
}

TEST(Parametrize, UnderAutocast) {
  const Linear layer(2, 2, false);
  register_parametrization(layer, "weight", std::make_shared<Twice>());
  const Tensor original = parametrizations_of(layer, "weight").originals()[0];
  const AutocastScope low(DType::bf16);
  for (const double value : {1.0, 3.0}) {  // the low copy is that of each forward's value
    {
      const NoGrad guard;
      Tensor(original).fill_(value);
    }
    Linear(layer).zero_grad();
    const Tensor y = layer(ones({1, 2}));
    EXPECT_EQ(y.dtype(), DType::bf16);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2, static_cast<float>(4 * value)));
    sum(y).backward();
    EXPECT_EQ(original.grad().dtype(), DType::f32);
    EXPECT_EQ(original.grad().to_vector<float>(), std::vector<float>(4, 2));
  }
}

TEST(Parametrize, CheckpointsComputeItAgain) {
  manual_seed(13);
  const Linear layer = linear64(3, 2);
  parametrizations::weight_norm(layer);
  const TensorList originals = parametrizations_of(layer, "weight").originals();
  const Tensor x = data({2, 3}).set_requires_grad();
  sum(square(layer(x))).backward();
  const Tensor wanted[] = {originals[0].grad().clone(), originals[1].grad().clone(), x.grad().clone()};
  Linear(layer).zero_grad();
  Tensor(x).set_grad({});
  const Tensor y = checkpoint([&](const Tensor& t) { return square(layer(t)); }, x);
  layer(x);
  sum(y).backward();
  EXPECT_EQ(distance(originals[0].grad(), wanted[0]), 0);
  EXPECT_EQ(distance(originals[1].grad(), wanted[1]), 0);
  EXPECT_EQ(distance(x.grad(), wanted[2]), 0);
}

TEST(Parametrize, NothingHoldsItselfAndGraphsOutliveTheModule) {
  std::weak_ptr<Parametrization> left;
  Tensor y, original;
  {
    const Linear layer = linear64(3, 2);
    const auto p = std::make_shared<Twice>();
    left = p;
    register_parametrization(layer, "weight", p);
    original = layer.named_parameters()[1].second;
    y = sum(layer(ones({1, 3}, DType::f64)));
  }
  EXPECT_TRUE(left.expired());
  y.backward();
  EXPECT_EQ(original.grad().to_vector<double>(), std::vector<double>(6, 2));
  const Ref<Storage> storage = original.storage();
  original = y = Tensor();
  EXPECT_EQ(storage.use_count(), 1u);
}

TEST(Parametrize, ModulesWhoseCallsRunNoHooksAreUpdated) {
  manual_seed(4);
  const LSTM lstm(3, 4);
  parametrizations::weight_norm(lstm, "weight_hh_l0");
  const Tensor x = randn({5, 2, 3});
  const Tensor before = lstm(x).output.detach();
  const ParametrizationList list = parametrizations_of(lstm, "weight_hh_l0");
  {
    const NoGrad guard;
    Tensor(list.originals()[0]).mul_(2);
  }
  EXPECT_EQ(distance(lstm(x).output, before), 0);
  Module above;
  above.register_module("lstm", lstm);
  update_parametrizations(above);
  const Tensor y = lstm(x).output;
  EXPECT_GT(distance(y, before), 1e-3);
  sum(y).backward();
  EXPECT_GT(amax(abs(list.originals()[0].grad())).item(), 0);
}

TEST(Parametrize, BuffersStayBuffers) {
  Module module;
  const Tensor buffer = module.register_buffer("scale", ones({2}));
  register_parametrization(module, "scale", std::make_shared<Twice>());
  EXPECT_TRUE(module.parameters().empty());
  EXPECT_EQ(names(module.state_dict()), Names({"parametrizations.scale.original"}));
  remove_parametrizations(module, "scale");
  EXPECT_TRUE(module.buffer("scale").same_as(buffer));
  EXPECT_EQ(buffer.to_vector<float>(), std::vector<float>({2, 2}));
}

TEST(Parametrize, SharedTensors) {
  manual_seed(5);
  const Linear a = linear64(3, 3, false);
  Module b("Tied");
  b.register_parameter("table", a.weight);
  const auto p = std::make_shared<Exp>();
  {
    const NoGrad guard;
    Tensor(a.weight).copy_(exp(data({3, 3})));
  }
  register_parametrization(a, "weight", p);
  EXPECT_NE(message<ValueError>([&] {
              register_parametrization(b, "table", std::make_shared<Exp>());
            }).find("is parametrized under another name"),
            std::string::npos);
  register_parametrization(b, "table", p);
  Module both;
  both.register_module("a", a);
  both.register_module("b", b);
  EXPECT_EQ(names(both.named_parameters()), Names({"a.parametrizations.weight.original"}));
  EXPECT_EQ(names(both.state_dict()),
            Names({"a.parametrizations.weight.original", "b.parametrizations.table.original"}));
  EXPECT_NE(message<ValueError>([&] { remove_parametrizations(a, "weight"); }).find("with another name"),
            std::string::npos);
  const Tensor x = data({2, 3});
  EXPECT_LT(distance(a(x), matmul(x, exp(both.parameters()[0]).t())), 1e-13);
}

TEST(Parametrize, Removal) {
  manual_seed(6);
  const Linear layer = linear64(3, 2);
  const Tensor slot = layer.weight, before = slot.detach().clone();
  register_parametrization(layer, "weight", std::make_shared<Twice>());
  const Tensor x = data({2, 3});
  sum(layer(x)).backward();
  remove_parametrizations(layer, "weight", false);
  EXPECT_EQ(distance(slot, before), 0);
  EXPECT_FALSE(is_parametrized(layer));
  EXPECT_EQ(names(layer.named_parameters()), Names({"bias", "weight"}));
  EXPECT_TRUE(layer.parameter("weight").same_as(slot) && slot.is_leaf() && slot.requires_grad());
  EXPECT_FALSE(slot.grad().defined());
  register_parametrization(layer, "weight", std::make_shared<Twice>());
  register_parametrization(layer, "bias", std::make_shared<Twice>());
  remove_parametrizations(layer, "weight");
  EXPECT_TRUE(is_parametrized(layer, "bias"));
  EXPECT_EQ(distance(slot, before * 2), 0);
  optim::SGD optimizer(layer.named_parameters(), {.lr = 0.1});
  sum(layer(x)).backward();
  optimizer.step();
  EXPECT_LT(distance(slot, before * 2 - sum(x, {0}) * 0.1), 1e-14);
}

TEST(Parametrize, Errors) {
  const Linear layer = linear64(3, 2);
  const StateDict before = layer.state_dict();
  const auto refused = [&](const auto& f) { return message<ValueError>(f); };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refused([&] { register_parametrization(layer, "wight", std::make_shared<Twice>()); }),
                  "Module 'Linear' does not have a parameter, a buffer, or a parametrized element with name 'wight'"));
  EXPECT_TRUE(has(refused([&] { parametrizations::spectral_norm(layer, "wight"); }), "with name 'wight'"));
  EXPECT_TRUE(has(refused([&] { register_parametrization(layer, "weight", nullptr); }), "null"));
  EXPECT_TRUE(has(refused([&] { register_parametrization(layer, "weight", std::make_shared<Row>()); }),
                  "changes its shape or dtype"));
  EXPECT_TRUE(has(refused([&] { register_parametrization(layer, "weight", std::make_shared<Single>()); }),
                  "changes its shape or dtype"));
  EXPECT_TRUE(has(refused([&] { remove_parametrizations(layer, "weight"); }),
                  "Module Linear does not have a parametrization on weight"));
  EXPECT_TRUE(has(refused([&] { parametrizations_of(layer, "weight"); }), "does not have a parametrization"));
  EXPECT_TRUE(has(refused([&] { parametrizations::orthogonal(layer, "weight", "givens"); }), "the map is cayley"));
  EXPECT_TRUE(has(refused([&] { parametrizations::orthogonal(layer, "bias"); }), "a matrix is wanted"));
  EXPECT_TRUE(has(refused([&] { parametrizations::spectral_norm(layer, "weight", 0); }), "at least 1"));
  EXPECT_THROW(parametrizations::weight_norm(layer, "weight", 2), IndexError);
  EXPECT_FALSE(is_parametrized(layer));
  EXPECT_EQ(names(layer.state_dict()), names(before));
  EXPECT_TRUE(layer.weight.is_leaf() && layer.weight.requires_grad());

  parametrizations::weight_norm(layer);
  EXPECT_TRUE(has(refused([&] { parametrizations::weight_norm(layer); }), "only be the first"));
  EXPECT_TRUE(has(refused([&] { register_parametrization(layer, "weight", std::make_shared<Row>()); }),
                  "changes its shape or dtype"));
  EXPECT_TRUE(has(refused([&] { remove_parametrizations(layer, "weight", false); }), "2 originals"));
  EXPECT_EQ(parametrizations_of(layer, "weight").size(), 1u);

  const Linear one = linear64(3, 2, false);
  register_parametrization(one, "weight", std::make_shared<Row>(), true);
  EXPECT_EQ(one(data({4, 3})).shape(), Shape({4, 1}));
  remove_parametrizations(one, "weight");
  EXPECT_EQ(one.weight.shape(), Shape({1, 3}));
}

TEST(Parametrize, StateAndConversions) {
  manual_seed(7);
  Sequential from(Linear(4, 4), Linear(4, 3)), to(Linear(4, 4), Linear(4, 3));
  for (const Sequential& net : {from, to}) {
    parametrizations::orthogonal(net.child("0"));
    parametrizations::spectral_norm(net.child("0"));
    parametrizations::weight_norm(net.child("1"), "weight", std::nullopt);
  }
  EXPECT_EQ(names(from.state_dict()),
            Names({"0.bias", "0.parametrizations.weight.0.base", "0.parametrizations.weight.1._u",
                   "0.parametrizations.weight.1._v", "0.parametrizations.weight.original", "1.bias",
                   "1.parametrizations.weight.original0", "1.parametrizations.weight.original1"}));
  from.eval();
  to.eval();
  const Tensor x = randn({2, 4});
  EXPECT_GT(distance(from(x), to(x)), 1e-2);
  const LoadReport report = to.load_state_dict(from.state_dict());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  const Tensor y = from(x);
  EXPECT_EQ(distance(y, to(x)), 0);
  to.to(DType::f64);
  EXPECT_LT(distance(to(x.to(DType::f64)), y.to(DType::f64)), 1e-5);
  EXPECT_EQ(to.parameters().size(), from.parameters().size());
  to.to(Device::meta());
  EXPECT_TRUE(to(x.to(DType::f64).to(Device::meta())).is_meta());
}

}  // namespace
}  // namespace strata::nn
