// A whole training step as a Recording: forward, backward and update of networks, run again to the same bits.
#include "strata/core/recording.h"

#include <map>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/nn.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

// What a replay leaves in the parameters, which the update's call names.
std::map<std::string, std::vector<uint8_t>> updated(const Recording& r, const Replay& again,
                                                    const optim::NamedTensors& names) {
  std::map<std::string, std::vector<uint8_t>> found;
  size_t at = 0;
  for (const RecordedCall& c : r.calls) {
    if (c.op->name() != "optimizer_update") continue;
    const auto& params = std::get<std::vector<ValueIndex>>(c.args[1]);
    for (const ValueIndex p : params) found[names.at(at++).first] = bits(again.value(p));  // in one call or several
  }
  return found;
}

// Records one step after one that makes the state, and runs it again from its text on other numbers of threads.
template <class Loss>
Recording check_step(optim::Optimizer& optimizer, const optim::NamedTensors& params, Loss&& loss_of) {
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor loss = loss_of();
    loss.backward();
    optim::clip_grad_norm(
        [&] {
          TensorList all;
          for (const auto& [name, p] : params) all.push_back(p);
          return all;
        }(),
        0.5);
    optimizer.step();
    return loss;
  };
  step();
  Tensor loss;
  const Recording recorded = record([&] { loss = step(); }, {.values = true});
  EXPECT_TRUE(recorded.writes.empty());
  const Recording read = Recording::from_text(recorded.to_text());
  const int threads = num_threads();
  for (const int n : {1, 3}) {
    set_num_threads(n);
    for (const Recording* r : {&recorded, &read}) {
      Replay again(*r);
      again.run();
      const auto found = updated(*r, again, params);
      EXPECT_EQ(found.size(), params.size());
      for (const auto& [name, p] : params) EXPECT_EQ(found.at(name), bits(p)) << name << ", " << n << " threads";
    }
  }
  set_num_threads(threads);
  return recorded;
}

int calls(const Recording& r, Phase phase) {
  int n = 0;
  for (size_t i = 0; i < r.calls.size(); ++i) n += r.is_work(i) && r.calls[i].phase == phase;
  return n;
}

TEST(RecordedStep, OfGptHasTheSameBitsAgain) {
  for (const bool low : {false, true}) {
    manual_seed(5);
    ModelConfig c = small_model("gpt", 2, 16, 20);
    c.dropout = 0.1;
    const auto model = make_model(c);
    model->train();
    const Tensor x = stepping_tokens(2, 16, 7, 20), y = (x + 1) % Scalar(20);
    const auto params = model->named_parameters();
    optim::AdamW optimizer(params, {.lr = 1e-2});
    const Recording r = check_step(optimizer, params, [&] {
      std::optional<AutocastScope> scope;
      if (low) scope.emplace();
      return model->loss(x, y);
    });
    EXPECT_GT(calls(r, Phase::forward), 10);
    EXPECT_GT(calls(r, Phase::backward), 10);
    EXPECT_GE(calls(r, Phase::update), 1);
    bool attention = false, of_rule = false, drawn = false;
    for (const RecordedCall& call : r.calls) {
      if (!call.module) continue;
      attention = attention || *call.module == "blocks.1.attn.qkv" || call.module->starts_with("blocks.1.attn");
      of_rule = of_rule || (call.phase == Phase::backward && call.module->starts_with("blocks.0.mlp"));
      for (const RecordedArg& a : call.args) drawn = drawn || std::holds_alternative<RngKey>(a);
    }
    EXPECT_TRUE(attention);
    EXPECT_TRUE(of_rule);
    EXPECT_TRUE(drawn);
  }
}

struct ConvNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(3, 6, 3));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(6));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.25));
  nn::Linear out = register_module("out", nn::Linear(6 * 4 * 4, 5));
  Tensor forward(const Tensor& x) const {
    const nn::ModuleCall in(*this);
    return out(dropout(max_pool2d(relu(norm(conv(x))), {2, 2})).flatten(1));
  }
};

TEST(RecordedStep, OfAConvolutionalNetHasTheSameBitsAgain) {
  manual_seed(7);
  ConvNet net;
  const Tensor x = rand({4, 3, 10, 10});
  const Tensor target = from_span<int64_t>(std::vector<int64_t>{0, 2, 4, 1}, {4});
  const auto params = net.named_parameters();
  const auto check = [&](optim::Optimizer&& optimizer) {
    const Recording r = check_step(optimizer, params, [&] { return cross_entropy(net.forward(x), target); });
    bool normed = false;
    for (const RecordedCall& c : r.calls)
      normed = normed || (c.phase == Phase::backward && c.module && *c.module == "norm");
    EXPECT_TRUE(normed);
  };
  check(optim::AdamW(params, {}));
  check(optim::SGD(params, {.lr = 0.1, .momentum = 0.9}));
  check(optim::Lion(params, {}));
  check(optim::Rprop(params, {}));
}

TEST(RecordedStep, OfTheMetaDeviceHasTheSameCalls) {
  const auto recorded = [](Device device) {
    const DeviceScope on(device);
    manual_seed(1);
    nn::Sequential net(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 2));
    optim::AdamW optimizer(net.named_parameters(), {});
    const Tensor x = full({3, 6}, 0.5);
    const auto step = [&] {
      optimizer.zero_grad();
      sum(net(x)).backward();
      optimizer.step();
    };
    step();
    return record(step);
  };
  const Recording here = recorded(Device::cpu()), dry = recorded(Device::meta());
  ASSERT_EQ(here.calls.size(), dry.calls.size());
  for (size_t i = 0; i < here.calls.size(); ++i) {
    EXPECT_EQ(here.calls[i].op, dry.calls[i].op) << i;
    EXPECT_EQ(here.calls[i].phase, dry.calls[i].phase) << i;
    EXPECT_EQ(here.calls[i].module, dry.calls[i].module) << i;
    EXPECT_EQ(here.calls[i].cost.flops, dry.calls[i].cost.flops) << i;
  }
  EXPECT_EQ(here.calls.back().op->name(), "optimizer_update");
  EXPECT_EQ(*here.calls[0].module, "0");
}

// Notes who enters and leaves.
struct Trace final : nn::ModulePolicy {
  void enter(const nn::Module& m) override { text += "<" + m.path() + ":" + m.kind(); }
  void leave(const nn::Module& m) noexcept override { text += ">"; }
  std::string text;
};

TEST(ModulePolicy, SeesModulesBeginAndEnd) {
  struct Inner : nn::Module {
    Inner() : Module("Inner") {}
    nn::Linear a = register_module("a", nn::Linear(2, 2));
    Tensor forward(const Tensor& x) const {
      const nn::ModuleCall in(*this);
      return a(x);
    }
  };
  struct Outer : nn::Module {
    Outer() : Module("Outer") {}
    Inner inner = register_module("inner", Inner());
    nn::Sequential tail = register_module("tail", nn::Sequential(nn::Tanh(), nn::Linear(2, 3)));
    Tensor forward(const Tensor& x) const {
      const nn::ModuleCall in(*this);
      return tail(inner.forward(x));
    }
  };
  const Outer net;
  const Tensor x = ones({1, 2});
  Trace trace, second;
  {
    const nn::ModulePolicyScope scope(trace);
    net.forward(x);
    EXPECT_THROW(net.forward(ones({1, 3})), ShapeError);
    const nn::ModulePolicyScope both(second);
    net.tail(x);
  }
  net.forward(x);
  EXPECT_EQ(trace.text,
            "<:Outer<inner:Inner<inner.a:Linear>><tail:Sequential<tail.0:Tanh><tail.1:Linear>>>"
            "<:Outer<inner:Inner<inner.a:Linear>>>"
            "<tail:Sequential<tail.0:Tanh><tail.1:Linear>>");
  EXPECT_EQ(second.text, "<tail:Sequential<tail.0:Tanh><tail.1:Linear>>");
  EXPECT_EQ(t_mode.unusual, 0u);
  EXPECT_EQ(memory::detail::t_caller.module, nullptr);
  EXPECT_EQ(net.inner.a.path(), "inner.a");
  EXPECT_EQ(net.path(), "");
}

}  // namespace
}  // namespace strata
