// Parameters computed from others: the machinery, and weight norm, spectral norm and orthogonal matrices.

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

double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  return amax(abs(a - b)).item();
}
Linear linear64(int64_t in, int64_t out, bool bias = true) {
  Linear layer(in, out, bias);
  layer.to(DType::f64);
  return layer;
}
Tensor data(const Shape& shape) {
  return randn(shape, DType::f64);
}
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

TEST(WeightNorm, IsLengthTimesDirection) {
  manual_seed(8);
  const Conv2d conv(3, 4, 2);
  Conv2d(conv).to(DType::f64);
  const Tensor before = conv.weight.detach().clone(), x = data({2, 3, 4, 4});
  const Tensor y = conv(x).detach();
  parametrizations::weight_norm(conv);
  const TensorList parts = parametrizations_of(conv, "weight").originals();
  EXPECT_EQ(parts[0].shape(), Shape({4, 1, 1, 1}));
  EXPECT_EQ(distance(parts[1], before), 0);
  EXPECT_LT(distance(conv(x), y), 1e-13);
  {
    const NoGrad guard;
    Tensor(parts[0]).fill_(3);
    Tensor(parts[1]).mul_(7);
  }
  conv(x);
  EXPECT_LT(distance(norm(conv.weight, 2, {1, 2, 3}), full({4}, 3.0, DType::f64)), 1e-14);
  EXPECT_LT(distance(conv.weight, before * 3 / norm(before, 2, {1, 2, 3}, true)), 1e-14);
}

// Gradients of a parametrised layer's originals and input.
void expect_gradients(const Linear& layer) {
  const ParametrizationList list = parametrizations_of(layer, "weight");
  TensorList inputs = list.originals();
  inputs.push_back(data({2, layer.weight.size(1)}).set_requires_grad());
  const GradcheckResult r = gradcheck([&](const TensorList& in) { return layer(in.back()); }, inputs);
  EXPECT_TRUE(r.ok) << r.report;
}

TEST(Parametrizations, Gradients) {
  manual_seed(9);
  for (const std::optional<int64_t> dim :
       {std::optional<int64_t>(0), std::optional<int64_t>(1), std::optional<int64_t>()}) {
    const Linear layer = linear64(4, 3);
    parametrizations::weight_norm(layer, "weight", dim);
    expect_gradients(layer);
  }
  Linear spectral = linear64(4, 3);
  parametrizations::spectral_norm(spectral);
  spectral.eval();  // in training each call moves the singular vectors
  expect_gradients(spectral);
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{3, 3}, {4, 2}, {2, 4}}) {
    const Linear layer = linear64(in, out);
    parametrizations::orthogonal(layer);
    const NoGrad guard;
    Tensor(parametrizations_of(layer, "weight").originals()[0]).copy_(data({out, in}));
    const GradMode on(true);
    expect_gradients(layer);
  }
}

TEST(SpectralNorm, DividesByTheLargestSingularValue) {
  manual_seed(10);
  Linear layer = linear64(5, 4);
  const Tensor before = layer.weight.detach().clone();
  parametrizations::spectral_norm(layer, "weight", 200);
  const Tensor x = data({1, 5});
  layer(x);
  EXPECT_NEAR(amax(linalg_svdvals(layer.weight.detach())).item(), 1, 1e-9);
  EXPECT_LT(distance(layer.weight, before / amax(linalg_svdvals(before))), 1e-9);
  // The vectors move in training only.
  const Tensor u = parametrizations_of(layer, "weight").at(0)->buffer("_u");
  {
    const NoGrad guard;
    Tensor(parametrizations_of(layer, "weight").originals()[0]).copy_(data({4, 5}));
  }
  const Tensor kept = u.clone();
  layer.eval();
  layer(x);
  EXPECT_EQ(distance(u, kept), 0);
  layer.train();
  layer(x);
  EXPECT_GT(distance(u, kept), 1e-3);
  // Transposed convolutions have their outputs in dimension 1.
  const ConvTranspose2d up(3, 5, 2);
  parametrizations::spectral_norm(up);
  EXPECT_EQ(parametrizations_of(up, "weight").at(0)->buffer("_u").shape(), Shape({5}));
  EXPECT_EQ(parametrizations_of(up, "weight").at(0)->buffer("_v").shape(), Shape({12}));
}

double off_orthonormal(const Tensor& w) {
  const Tensor tall = (w.size(0) < w.size(1) ? w.t() : w).detach();
  return distance(matmul(tall.t(), tall), eye(tall.size(1), {}, DType::f64));
}

TEST(Orthogonal, StaysOrthonormalInTraining) {
  manual_seed(11);
  const auto trains = [](int64_t in, int64_t out, const char* map) {
    SCOPED_TRACE(map);
    const Linear layer = linear64(in, out);
    parametrizations::orthogonal(layer, "weight", map);
    const Tensor start = layer.weight.detach().clone();
    EXPECT_LT(off_orthonormal(start), 1e-14);
    const Tensor x = data({16, in}), y = data({16, out});
    optim::SGD optimizer(layer.named_parameters(), {.lr = 0.2});
    double first = 0, last = 0;
    for (int step = 0; step < 8; ++step) {
      Linear(layer).zero_grad();
      const Tensor loss = mean(square(layer(x) - y));
      (step == 0 ? first : last) = loss.item();
      loss.backward();
      optimizer.step();
      EXPECT_LT(off_orthonormal(layer.weight), 1e-13);
    }
    EXPECT_LT(last, first);
    EXPECT_GT(distance(layer.weight, start), 1e-3);
  };
  for (const char* map : {"cayley", "matrix_exp", "householder"})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{4, 4}, {6, 3}, {3, 6}}) trains(in, out, map);
  // An orthonormal weight is where it begins.
  for (const char* map : {"cayley", "matrix_exp", "householder"}) {
    const Linear layer = linear64(4, 4);
    {
      const NoGrad guard;
      Tensor(layer.weight).copy_(-eye(4, {}, DType::f64));
    }
    parametrizations::orthogonal(layer, "weight", map);
    EXPECT_LT(distance(layer.weight, -eye(4, {}, DType::f64)), 1e-14) << map;
  }
}

TEST(Parametrizations, TrainingKeepsTheSpectralNorm) {
  manual_seed(12);
  Linear layer = linear64(5, 4);
  parametrizations::spectral_norm(layer, "weight", 50);
  const Tensor x = data({16, 5}), y = data({16, 4});
  optim::SGD optimizer(layer.named_parameters(), {.lr = 0.1});
  double first = 0, last = 0;
  for (int step = 0; step < 8; ++step) {
    layer.zero_grad();
    const Tensor loss = mean(square(layer(x) - y));
    (step == 0 ? first : last) = loss.item();
    EXPECT_NEAR(amax(linalg_svdvals(layer.weight.detach())).item(), 1, 1e-3);
    loss.backward();
    optimizer.step();
  }
  EXPECT_LT(last, first);
}

// What the Python package computes of the same tensors and seeds.
TEST(Parametrizations, GiveThePythonPackagesNumbers) {
  const Tensor x = cos(arange(0, 8, 1, DType::f64)).reshape({2, 4});
  const auto layer = [](int64_t out) {
    Linear made = linear64(4, out, false);
    const NoGrad guard;
    made.weight.copy_(sin(arange(1, 4 * out + 1, 1, DType::f64)).reshape({out, 4}));
    return made;
  };
  const auto expect = [&](const Linear& of, const std::vector<double>& wanted) {
    EXPECT_LT(distance(of(x).flatten(), from_span<double>(wanted, {static_cast<int64_t>(wanted.size())})), 1e-13);
  };
  const Linear lengths = layer(2);
  parametrizations::weight_norm(lengths);
  {
    const NoGrad guard;
    Tensor(parametrizations_of(lengths, "weight").originals()[0]).mul_(2);
  }
  expect(lengths, {4.046537256155, -4.72550649590585, -1.45428942949277, 3.8484670949064});
  const Linear spectral = layer(2);
  manual_seed(3);
  parametrizations::spectral_norm(spectral);
  spectral(x);
  expect(spectral, {1.01283175147121, -1.1827749796587, -0.364002705715557, 0.963255598915969});
}

// torch.nn.utils.parametrizations.orthogonal (2.15) of the same original and base.
TEST(Parametrizations, OrthogonalMapsArePyTorchs) {
  const Tensor x = cos(arange(0, 8, 1, DType::f64)).reshape({2, 4});
  const auto expect = [&](const char* map, int64_t out, const std::vector<double>& wanted) {
    const Linear made = linear64(4, out, false);
    parametrizations::orthogonal(made, "weight", map);
    const NoGrad guard;
    Tensor original = parametrizations_of(made, "weight").originals()[0];
    original.copy_(cos(arange(0, 4 * out, 1, DType::f64)).reshape({out, 4}));
    if (map == std::string("householder")) original.diagonal().fill_(-1);
    const int64_t n = std::max<int64_t>(out, 4);
    for (const auto& [name, buffer] : made.named_buffers())
      if (name.ends_with("base"))
        Tensor(buffer).copy_(std::get<0>(linalg_qr(sin(square(arange(1, n * n + 1, 1, DType::f64))).reshape({n, n}))));
    EXPECT_LT(distance(made(x).flatten(), from_span<double>(wanted, {2 * out})), 1e-13) << map << ' ' << out;
  };
  expect("cayley", 2, {-1.18471602210775, -0.315122965181207, 0.421617856174559, 0.0461299979697617});
  expect("cayley", 4,
         {-0.817697512257688, -0.0936087981817659, 1.27879654128543, 0.363974575989575, 0.854736794850307,
          -0.305179942694241, -0.924222460814378, 0.565785174832292});
  expect("cayley", 5,
         {-0.47457238242274, 0.599809372524179, -0.196882467954896, -0.797848923682717, -1.08851921153642,
          -0.575672460250172, -0.459029861691186, 0.222665099802528, 0.713601694794823, 0.947151247757612});
  expect("matrix_exp", 2, {-1.09124958566429, -0.336739594379869, 0.212875370722641, 0.266050308058486});
  expect("matrix_exp", 5,
         {-0.295071305114627, 0.790307543677893, 0.146399304006571, -1.06339521318249, -0.762426842582638,
          -0.684649116467239, -0.514691694969029, 0.128963781599691, 0.881367968864653, 0.686233706526479});
  // The default of a square matrix.
  expect("", 4,
         {-0.642778456154424, 0.0335414393078129, 1.40214189055543, 0.254752549589497, 0.853637711396643,
          -0.347683163806227, -0.884439224532705, 0.605141421836923});
  expect("householder", 2, {-0.073475551026182, -1.21462743855373, -0.605633557802945, 0.97645888848769});
  expect("householder", 4,
         {0.617221735152519, -0.724579006222441, 1.23778432809328, 0.0842761243975951, 0.197867812059933,
          0.0693965118475093, -1.39459787747106, 0.0955982231783168});
  expect("householder", 5,
         {-0.0357370072583616, -0.57103621431921, 0.446285222615984, -1.33690815474923, 0.362403792347171,
          -0.417858762492119, 0.30109954296419, 0.413572150571669, 1.2496489855437, -0.00885528452779671});
}

}  // namespace
}  // namespace strata::nn
