// Training on a CUDA device, captured and not; and f16 training, which the CPU does too.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/op_base.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/ops/random/random.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/ranks.h"
#include "strata/train/run.h"
#include "strata/train/step_runner.h"
#include "strata/train/trainer.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

class StepTest : public TrainTest {
 protected:
  StepTest() { c_.steps = 10; }

  // The run's log.
  std::string train_in(const char* name, bool resume = false) {
    const std::string path = dir_ / (std::string(name) + ".log");
    std::FILE* log = std::fopen(path.c_str(), "w");
    try {
      train(c_, {.out = dir_ / name, .resume = resume, .log = log});
    } catch (...) {
      std::fclose(log);
      throw;
    }
    std::fclose(log);
    return io::read_file(path, 1 << 20);
  }
  // The last checkpoints of two runs, and their steps' numbers.
  void expect_same(const char* one, const char* other) {
    const auto last = [&](const char* name) { return io::list_checkpoints(dir_ / name).back(); };
    expect_same_checkpoints(last(one), last(other));
    const auto a = metrics(one), b = metrics(other);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].step, b[i].step);
      EXPECT_EQ(a[i].loss, b[i].loss) << i;
      EXPECT_EQ(a[i].grad_norm, b[i].grad_norm) << i;
      EXPECT_EQ(a[i].lr, b[i].lr) << i;
      EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    }
  }
};

TEST_F(StepTest, F16LearnsOnTheCpuAndGoesOnWithItsScale) {
  c_.dtype = "f16";
  c_.model.dropout = 0.1;
  c_.accumulate = 2;
  c_.steps = 20;
  c_.optim.lr = 5e-3;
  train_in("whole");
  const auto m = metrics("whole");
  ASSERT_EQ(m.size(), 20u);
  EXPECT_NEAR(m.front().loss, std::log(256.0), 0.3);
  EXPECT_LT(m.back().loss, 0.95 * m.front().loss);
  c_.save_every = 10;
  c_.keep_last = 10;
  train_in("parts");
  std::filesystem::remove_all(dir_ / "parts/step-00000020");
  const io::Checkpoint c = io::load_checkpoint(dir_ / "parts/step-00000010");
  ASSERT_TRUE(c.state.contains("loss_scale"));
  EXPECT_GT(std::stod(c.state.at("loss_scale")), 1);
  EXPECT_LE(std::stod(c.state.at("loss_scale")), 65536);
  train_in("parts", true);
  expect_same("whole", "parts");
}

TEST_F(StepTest, AGraphNeedsACard) {
  c_.graph = "on";
  const std::string text = message<ValueError>([&] { train_in("run"); });
  EXPECT_NE(text.find("train.graph"), std::string::npos) << text;
  c_.graph = "perhaps";
  EXPECT_THROW(train_in("run"), ValueError);
}

class OnCard : public StepTest {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    c_.device = "cuda";
  }
  void captured_equals_eager() {
    c_.eval_every = 4;
    c_.graph = "off";
    const std::string eager = train_in("eager");
    EXPECT_EQ(eager.find("graph"), std::string::npos) << eager;
    c_.graph = "on";
    const std::string captured = train_in("captured");
    EXPECT_NE(captured.find("one CUDA graph of"), std::string::npos) << captured;
    expect_same("eager", "captured");
    // Stopped and gone on with, too.
    c_.save_every = 6;
    c_.keep_last = 10;
    train_in("parts");
    std::filesystem::remove_all(dir_ / "parts/step-00000010");
    train_in("parts", true);
    expect_same("eager", "parts");
    const auto m = metrics("captured");
    EXPECT_LT(m.back().loss, m.front().loss);
    for (const StepMetrics& s : m) EXPECT_GT(s.tokens_per_s, 0);
  }
};

class CapturedTraining : public OnCard,
                         public testing::WithParamInterface<std::tuple<const char*, const char*, const char*, int>> {};

TEST_P(CapturedTraining, EqualsTheEagerOneBitForBit) {
  int accumulate = 1;
  std::tie(c_.model.family, c_.dtype, c_.optim.optimizer, accumulate) = GetParam();
  c_.accumulate = accumulate;
  c_.model.dropout = c_.model.family == "gpt" ? 0.1 : 0;
  captured_equals_eager();
}
INSTANTIATE_TEST_SUITE_P(Train, CapturedTraining,
                         testing::Values(std::tuple{"gpt", "f32", "adamw", 2}, std::tuple{"gpt", "bf16", "adamw", 1},
                                         std::tuple{"llama", "bf16", "adamw", 3}, std::tuple{"gpt", "f16", "adamw", 2},
                                         std::tuple{"gpt", "bf16", "lion", 1}, std::tuple{"llama", "f32", "sgd", 1},
                                         std::tuple{"gpt", "f32", "adam", 1}, std::tuple{"gpt", "bf16", "muon", 1},
                                         std::tuple{"gpt", "bf16", "adafactor", 2},
                                         std::tuple{"gpt", "fp8", "adamw", 2}, std::tuple{"llama", "fp8", "adamw", 1}));

TEST_F(OnCard, CapturedFp8ByRowEqualsTheEagerOne) {
  c_.dtype = "fp8";
  c_.fp8_scaling = "row";
  c_.accumulate = 2;
  captured_equals_eager();
}

TEST_F(OnCard, CapturedFp8WithLowGradientsEqualsTheEagerOne) {
  c_.dtype = "fp8";
  c_.param_dtype = c_.grad_dtype = "bf16";
  captured_equals_eager();
}

class CapturedRules : public OnCard, public testing::WithParamInterface<const char*> {};

TEST_P(CapturedRules, EqualTheEagerOnesBitForBit) {
  c_.optim.optimizer = GetParam();
  c_.optim.lr = learning_rate(GetParam());
  c_.optim.warmup = 2;
  c_.optim.weight_decay = 0.001;
  captured_equals_eager();
}
INSTANTIATE_TEST_SUITE_P(Train, CapturedRules,
                         testing::Values("rmsprop", "adagrad", "adadelta", "adamax", "nadam", "radam"));

class CapturedWeights16
    : public OnCard,
      public testing::WithParamInterface<std::tuple<const char*, const char*, const char*, std::string_view>> {};

TEST_P(CapturedWeights16, EqualTheEagerOnesBitForBit) {
  std::string_view moments;
  std::tie(c_.model.family, c_.optim.optimizer, c_.optim.param_update, moments) = GetParam();
  c_.optim.low_state = moments == "bf16";
  c_.optim.state_8bit = moments == "8 bits";
  c_.dtype = c_.param_dtype = "bf16";
  c_.sample_tokens = 4;
  captured_equals_eager();
}
INSTANTIATE_TEST_SUITE_P(
    Train, CapturedWeights16,
    testing::Values(std::tuple{"gpt", "adamw", "stochastic", "f32"}, std::tuple{"llama", "adamw", "stochastic", "bf16"},
                    std::tuple{"gpt", "adamw", "master", "f32"}, std::tuple{"gpt", "lion", "stochastic", "f32"},
                    std::tuple{"llama", "muon", "stochastic", "f32"}, std::tuple{"gpt", "sgd", "stochastic", "f32"},
                    std::tuple{"llama", "adafactor", "stochastic", "f32"},
                    std::tuple{"gpt", "adamw", "compensated", "8 bits"},
                    std::tuple{"llama", "muon", "compensated", "8 bits"},
                    std::tuple{"gpt", "lion", "stochastic", "8 bits"}));

TEST_F(OnCard, FallsBackWithTheReason) {
  CallObserver watch;
  const ObserverScope scope(watch);
  const std::string log = train_in("eager");
  EXPECT_NE(log.find("no CUDA graph, each op is launched by itself"), std::string::npos) << log;
  EXPECT_EQ(metrics("eager").size(), 10u);
  c_.graph = "on";
  EXPECT_THROW(train_in("on"), ValueError);
}

TEST_F(OnCard, DivergenceNamesTheStepAndTheOp) {
  // From a good checkpoint on at a rate that no model survives.
  c_.save_every = 5;
  c_.steps = 5;
  train_in("run");
  c_.steps = 60;
  c_.save_every = 0;
  c_.optim.optimizer = "sgd";
  c_.optim.number("momentum") = 0;
  c_.optim.lr = 1000;
  c_.optim.warmup = 0;
  c_.optim.grad_clip = 0;
  c_.dtype = "f16";
  std::string text = message<DivergedError>([&] { train_in("wild"); });
  EXPECT_NE(text.find("step "), std::string::npos) << text;
  EXPECT_NE(text.find("There is no checkpoint yet"), std::string::npos) << text;
  // A weight that is not a number, in a checkpoint that is otherwise whole.
  c_.optim = {};
  c_.dtype = "f32";
  io::Checkpoint c = io::load_checkpoint(dir_ / "run/step-00000005");
  c.files.at("model").at("blocks.1.mlp.up.weight").data<float>()[7] = NAN;
  io::save_checkpoint(dir_ / "run", 5, c.files, c.state);
  c_.steps = 10;
  text = message<DivergedError>([&] { train_in("run", true); });
  EXPECT_NE(text.find("step 6"), std::string::npos) << text;
  EXPECT_NE(text.find("first produced by"), std::string::npos) << text;
  EXPECT_NE(text.find("step-00000005"), std::string::npos) << text;
  EXPECT_EQ(metrics("run").size(), 5u);
}

TEST(CudaSteps, AreReadWhereAScopeMakesTensorsOnTheCard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const DeviceScope there(Device::cuda());
  TrainConfig config;
  config.device = "cuda";
  config.model.layers = 1, config.model.dim = 32, config.model.heads = 2, config.model.vocab = 64;
  config.model.context = 16;
  const std::shared_ptr<LanguageModel> model = make_model(config.model);
  const auto optimizer = make_optimizer(config.optim, trained_parameters(*model));
  const Ranks ranks(config);
  StepRunner runner(*model, *optimizer, config, Device::cuda(), ranks);
  const auto ids = [] { return randint(0, 64, {2, 16}, DType::i64); };
  const std::vector<data::Batch> batches = {{ids(), ids()}};
  for (int step = 0; step < 3; ++step) {
    runner.begin();
    runner.launch(batches, 1e-3);
    EXPECT_GT(runner.read().loss, 0);
  }
  EXPECT_TRUE(runner.captured());
}

}  // namespace
}  // namespace strata
