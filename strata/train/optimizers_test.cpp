// What train.optimizer names: each rule with the keys that it reads, in memory and across a resume.

#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/factory/factory.h"
#include "strata/train/estimate.h"
#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    all.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

std::vector<std::string> optimizers() {
  for (const ConfigKey& key : config_keys())
    if (key.name == "train.optimizer") return words(key.choices);
  return {};
}

// Sets a key of some optimizers to something that is in range and not the default.
void change(TrainConfig& c, const ConfigKey& key) {
  if (key.type == ConfigType::boolean) {
    bool& field = *static_cast<bool*>(key.field(c));
    field = !field;
  } else {
    ASSERT_EQ(key.type, ConfigType::number) << key.name;
    double& field = *static_cast<double*>(key.field(c));
    field = key.name == "train.step_size_max" ? 5e-4 : 0.5 * field + 0.1;
    if (field < key.min) field = 1.5 * key.min;
  }
}

TEST(Optimizers, EveryNameMakesItsRule) {
  ASSERT_EQ(optimizers().size(), 14u);
  for (const std::string& name : optimizers()) {
    OptimConfig c;
    c.optimizer = name;
    const auto o = make_optimizer(c, {{"w", ones({2, 3})}, {"b", ones({3})}});
    EXPECT_EQ(o->name(), name);
    EXPECT_TRUE(o->capturable()) << name;
  }
  OptimConfig c;
  c.optimizer = "adm";
  EXPECT_THROW(make_optimizer(c, {{"w", ones({2, 3})}}), ValueError);
}

// The weights and the state after a few updates by gradients that turn and shrink: a hidden matrix, a table and a bias.
std::vector<float> trained(const OptimConfig& c) {
  const Tensor w = ones({4, 3}), e = ones({4, 3}), b = ones({3});
  const auto o = make_optimizer(c, {{"w", w}, {"table", e}, {"b", b}}, 0, {"table"});
  for (int step = 0; step < 12; ++step) {
    for (Tensor t : {w, e, b}) {
      Tensor g = empty(t.shape());
      for (int64_t i = 0; i < g.numel(); ++i)
        g.data<float>()[i] = static_cast<float>(
            std::sin(1.7 * static_cast<double>(i) + step * (1.0 + 0.3 * static_cast<double>(i % 3))) / (1 + step));
      t.set_grad(g);
    }
    o->step();
  }
  std::vector<float> all = w.to_vector<float>();
  for (const Tensor& t : {e, b})
    for (const float v : t.to_vector<float>()) all.push_back(v);
  for (const auto& [key, t] : o->state_dict())
    if (t.dtype() == DType::f32)
      for (const float v : t.to_vector<float>()) all.push_back(v);
  return all;
}

TEST(Optimizers, EveryKeyChangesTheUpdatesOfThoseThatReadItAndIsRefusedByTheOthers) {
  int keys = 0;
  for (const ConfigKey& key : config_keys()) {
    if (key.optimizers.empty()) continue;
    ++keys;
    for (const std::string& name : words(key.optimizers))
      EXPECT_NE(std::ranges::count(optimizers(), name), 0) << key.name << " names " << name;
    for (const std::string& name : optimizers()) {
      TrainConfig c;
      c.optim.optimizer = name;
      if (name == "asgd") c.optim.number("lambd") = 0.5, c.optim.number("t0") = 2;  // where a few updates show them
      EXPECT_NO_THROW(validate(c)) << name;
      const std::vector<float> plain = trained(c.optim);
      change(c, key);
      if (is_read(key, name)) {
        EXPECT_NO_THROW(validate(c)) << key.name << " of " << name;
        EXPECT_NE(trained(c.optim), plain) << key.name << " of " << name;
        EXPECT_EQ(parse_config(to_toml(c)), c) << key.name << " of " << name;
        continue;
      }
      EXPECT_EQ(trained(c.optim), plain) << key.name << " of " << name;
      try {
        validate(c);
        ADD_FAILURE() << name << " took " << key.name;
      } catch (const ValueError& e) {
        EXPECT_EQ(e.what(), "config: " + std::string(key.name) + " is of " + std::string(key.optimizers) +
                                ": train.optimizer = " + name + " does not read it");
      }
    }
  }
  EXPECT_GE(keys, 13);
}

// L2 moves a weight that has no gradient through the rule, which divides it out: apart from it, it is lr weight_decay
// w.
TEST(Optimizers, DecayIsAddedToTheGradientOrApartFromIt) {
  for (const std::string& name : optimizers()) {
    for (const bool decoupled : {true, false}) {
      OptimConfig c;
      c.optimizer = name;
      c.number("momentum") = c.number("lambd") = 0;
      c.flag("decoupled_weight_decay") = decoupled;
      Tensor w = ones({2, 3});
      const auto o = make_optimizer(c, {{"w", w}});
      for (int step = 0; step < 10; ++step) {
        w.set_grad(zeros({2, 3}));
        o->step();
      }
      const bool apart = std::abs(w.to_vector<float>()[0] - std::pow(1 - c.lr * c.weight_decay, 10)) < 1e-6;
      const bool same = name == "sgd" || name == "asgd", none = name == "rprop";
      EXPECT_EQ(decays_gradient(c), !none && (!apart || same)) << name << decoupled;
    }
  }
}

TEST(Optimizers, KeysThatAreNotReadAreToldWhereTheyStand) {
  const auto message = [](const char* text, const std::vector<std::string>& overrides) -> std::string {
    try {
      parse_config(text, "a.toml", overrides);
    } catch (const ValueError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message("[train]\nalpha = 0.9", {}),
            "a.toml:2: train.alpha is of rmsprop: train.optimizer = adamw does not read it");
  EXPECT_EQ(message("[train]\noptimizer = \"sgd\"\nbeta1 = 0.5", {}).substr(0, 28), "a.toml:3: train.beta1 is of ");
  EXPECT_EQ(message("", {"train.rho=0.8"}),
            "--set: train.rho is of adadelta: train.optimizer = adamw does not read it");
  EXPECT_EQ(message("", {"train.optimizer=sgd", "train.rho=0.8"}).substr(0, 6), "--set:");
  // The default says nothing.
  EXPECT_EQ(message("[train]\nalpha = 0.99", {}), "");
  // Nor does nothing.
  EXPECT_EQ(message("", {"train.optimizer=rprop", "train.weight_decay=0"}), "");
  EXPECT_EQ(message("", {"train.optimizer=rprop", "train.weight_decay=0.2"}).substr(0, 33),
            "--set: train.weight_decay is of a");
  // Another optimizer for a file that has settings of its own.
  const TrainConfig c = parse_config("[train]\nbeta2 = 0.99\nnesterov = false", "a.toml", {"train.optimizer=sgd"});
  EXPECT_EQ(c.optim.rule, OptimConfig().rule);
  // What was accepted once.
  const char* old = "[train]\noptimizer = \"sgd\"\nbeta2 = 0.99\nlow_state = true\n";
  const TrainConfig kept = parse_config(old, "old", {}, Unread::dropped);
  EXPECT_EQ(std::get<double>(kept.optim.rule.at("beta2")), std::get<double>(OptimConfig().rule.at("beta2")));
  EXPECT_TRUE(kept.optim.low_state);
}

class OptimizerOfRun : public TrainTest, public testing::WithParamInterface<std::string> {};

// Of f32 weights, and of bf16 ones in each way that they have.
TEST_P(OptimizerOfRun, TakesTheMemoryOfTheEstimate) {
  set_num_threads(1);
  c_.optim.optimizer = GetParam();
  c_.batch = 2;
  struct Way {
    const char *dtype, *update;
    bool low_state = false, state_8bit = false;
  };
  int64_t f32 = 0;
  for (const Way& way : {Way{"f32", "stochastic"}, Way{"bf16", "nearest"}, Way{"bf16", "stochastic"},
                         Way{"bf16", "stochastic", true}, Way{"bf16", "master"}, Way{"bf16", "compensated"},
                         Way{"f32", "stochastic", false, true}, Way{"bf16", "compensated", false, true}}) {
    if (GetParam() == "adafactor" && std::string_view(way.update) == "compensated") continue;
    c_.dtype = c_.param_dtype = way.dtype;
    c_.optim.param_update = way.update;
    c_.optim.low_state = way.low_state;
    c_.optim.state_8bit = way.state_8bit;
    const MemoryEstimate estimate = estimate_memory(c_);
    ModelConfig m = c_.model;
    m.vocab = 256;
    TrainConfig sized = c_;
    sized.model = m;
    const auto model = make_model(sized);
    const auto optimizer = make_optimizer(c_.optim, model->named_parameters(), 0, model->table_names());
    for (auto [name, t] : model->named_parameters()) t.set_grad(zeros_like(t));
    optimizer->step();
    int64_t bytes = 0, blocks = 0;
    for (const auto& [key, t] : optimizer->state_dict()) {
      bytes += t.nbytes();
      blocks += static_cast<int64_t>(memory::block_size(static_cast<size_t>(t.nbytes())));
    }
    const std::string what = GetParam() + " " + way.dtype + " " + way.update + (way.low_state ? " low_state" : "") +
                             (way.state_8bit ? " state_8bit" : "");
    EXPECT_EQ(optimizer->state_bytes(), bytes) << what;
    // The estimate is of blocks of an allocator.
    EXPECT_GE(estimate.optimizer, bytes) << what;
    EXPECT_LE(estimate.optimizer, blocks) << what;
    if (f32 == 0) f32 = bytes;
  }
  EXPECT_GT(f32, 0);
}

// 6 steps, save, 6 more == 12 unbroken; and it learns.
TEST_P(OptimizerOfRun, ResumesToTheSameBits) {
  c_.optim.optimizer = GetParam();
  c_.model.layers = 1;
  c_.model.dropout = 0.1;
  c_.steps = 12;
  c_.optim.warmup = 2;
  if (GetParam() != "rprop") c_.optim.weight_decay = 0.001;
  c_.optim.lr = learning_rate(GetParam());
  // Every state that there is.
  c_.optim.flag("centered") = GetParam() == "rmsprop";
  c_.optim.flag("amsgrad") = GetParam() == "adamw";
  const auto in = [&](const char* name, bool resume) {
    return train(c_, {.out = dir_ / name, .resume = resume, .stop_requested = nullptr, .log = nullptr});
  };
  const TrainResult unbroken = in("unbroken", false);
  c_.save_every = 6;
  c_.keep_last = 100;
  in("broken", false);
  std::filesystem::remove_all(dir_ / "broken/step-00000012");
  const TrainResult resumed = in("broken", true);
  EXPECT_EQ(resumed.step, 12);
  expect_same_checkpoints(unbroken.checkpoint, resumed.checkpoint);
  const auto m = metrics("broken");
  ASSERT_EQ(m.size(), 12u);
  EXPECT_LT(m.back().loss, m.front().loss - 0.1);
  // The settings come back with the run.
  EXPECT_EQ(find_run(dir_ / "broken").state.config.optim, c_.optim);
}
INSTANTIATE_TEST_SUITE_P(Train, OptimizerOfRun, testing::ValuesIn(optimizers()));

}  // namespace
}  // namespace strata
