#include "strata/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "strata/core/parallel.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/generate/sampling.h"
#include "strata/train/report.h"
#include "strata/train/run.h"
#include "strata/train/train_data.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

class Trainer : public TrainTest {
 protected:
  Trainer() {
    c_.model.dropout = 0.1;
    c_.steps = 20;
  }
  TrainResult train_in(const char* name, bool resume = false, bool (*stop)() = nullptr) {
    return train(c_, {.out = dir_ / name, .resume = resume, .stop_requested = stop, .log = nullptr});
  }
};

bool stop_now() {
  return true;
}

TEST_F(Trainer, ResumesOnlyItsOwnModel) {
  c_.steps = 2;
  train_in("run");
  c_.model.layers = 3;
  c_.steps = 4;
  try {
    train_in("run", /*resume=*/true);
    FAIL() << "another model took the run's weights";
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("model.layers is 3, but the run in"), std::string::npos) << e.what();
  }
}

// The second step of each start is recorded; what it computes is not changed by it (Resume compares bits).
TEST_F(Trainer, RecordsAStep) {
  c_.steps = 1;
  train_in("run");
  EXPECT_FALSE(read_recorded_step(dir_ / "run"));
  EXPECT_TRUE(read_run(dir_ / "run").costs.parts().empty());
  c_.steps = 4;
  train_in("run", /*resume=*/true);
  const std::optional<Recording> step = read_recorded_step(dir_ / "run");
  ASSERT_TRUE(step);
  const auto count = [&](std::string_view op) {
    return std::count_if(step->calls.begin(), step->calls.end(),
                         [&](const RecordedCall& c) { return c.op->name() == op; });
  };
  EXPECT_EQ(count("optimizer_update"), 1);  // one step, not two
  const lab::StepCosts costs = read_run(dir_ / "run").costs;
  const lab::CostRow all = costs.all();
  EXPECT_GT(all.flops, 0);
  EXPECT_GT(all.seconds, 0);
  EXPECT_EQ(all.limit, 0);
  const std::vector<lab::CostRow> phases = costs.rows(lab::CostBy::phase), modules = costs.rows(lab::CostBy::module);
  EXPECT_EQ(phases.size(), 3u);
  const auto is_block = [](const lab::CostRow& r) { return r.name.starts_with("blocks.*."); };
  EXPECT_TRUE(std::any_of(modules.begin(), modules.end(), is_block)) << costs.table(lab::CostBy::module);
  EXPECT_NE(io::read_file(dir_ / "run/report.html").find("id=\"costs\""), std::string::npos);
  const lab::StepCosts limited = read_run(dir_ / "run", false, /*with_limits=*/true).costs;
  EXPECT_GT(limited.all().limit, 0);
  // A start that ends before its second step keeps what there was; a damaged file is no reason to fail.
  c_.steps = 5;
  train_in("run", true);
  EXPECT_EQ(read_recorded_step(dir_ / "run")->to_text(), step->to_text());
  EXPECT_NE(io::read_file(dir_ / "run/report.html").find("id=\"costs\""), std::string::npos);
  io::write_file(dir_ / "run/step.recording", step->to_text().substr(0, 1000));
  EXPECT_TRUE(read_run(dir_ / "run").costs.parts().empty());
  c_.steps = 7;
  train_in("run", true);
  EXPECT_EQ(read_recorded_step(dir_ / "run")->calls.size(), step->calls.size());
}

TEST_F(Trainer, LossFalls) {
  c_.steps = 60;
  c_.optim.lr = 5e-3;
  c_.eval_every = 30;
  const TrainResult r = train_in("run");
  const std::vector<StepMetrics> m = read_metrics(dir_ / "run/metrics.jsonl");
  ASSERT_EQ(m.size(), 60u);
  EXPECT_NEAR(m.front().loss, std::log(256.0), 0.3);
  EXPECT_LT(m.back().loss, 0.6 * m.front().loss);
  EXPECT_FALSE(std::isnan(m[29].valid_loss));
  EXPECT_TRUE(std::isnan(m[30].valid_loss));
  EXPECT_LT(m[59].valid_loss, m[29].valid_loss);
  EXPECT_EQ(r.step, 60);
  EXPECT_EQ(r.status, "finished");
  EXPECT_EQ(m.back().tokens, 60 * 4 * 32);
  for (const StepMetrics& s : m) EXPECT_GT(s.grad_norm, 0);
}

class Resume : public Trainer, public testing::WithParamInterface<std::tuple<const char*, const char*, const char*>> {};

// 10 steps, save, 10 more == 20 unbroken.
TEST_P(Resume, SameBitsAsUnbroken) {
  std::tie(c_.model.family, c_.dtype, c_.optim.optimizer) = GetParam();
  c_.accumulate = 2;
  c_.optim.lr = 1e-3;
  const TrainResult unbroken = train_in("unbroken");
  c_.save_every = 10;
  c_.keep_last = 100;
  train_in("first");
  // What a run killed after step 10 leaves.
  std::filesystem::remove_all(dir_ / "first/step-00000020");
  const TrainResult resumed = train_in("first", true);
  EXPECT_EQ(resumed.step, 20);
  expect_same_checkpoints(unbroken.checkpoint, resumed.checkpoint);
  const auto a = read_metrics(dir_ / "unbroken/metrics.jsonl"), b = read_metrics(dir_ / "first/metrics.jsonl");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << i;
    EXPECT_EQ(a[i].step, b[i].step) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Train, Resume,
                         testing::Values(std::tuple{"gpt", "f32", "adamw"}, std::tuple{"llama", "bf16", "adamw"},
                                         std::tuple{"gpt", "fp8", "adamw"}, std::tuple{"llama", "fp8", "muon"},
                                         std::tuple{"gpt", "f32", "muon"}, std::tuple{"gpt", "f32", "sgd"},
                                         std::tuple{"gpt", "f32", "lion"}, std::tuple{"gpt", "f32", "adafactor"}));

class Weights16 : public Trainer,
                  public testing::WithParamInterface<std::tuple<const char*, const char*, std::string_view>> {};

TEST_P(Weights16, ResumeToTheSameBitsAndAnswer) {
  const char* optimizer;
  std::string_view moments;
  c_.dtype = c_.param_dtype = "bf16";
  std::tie(optimizer, c_.optim.param_update, moments) = GetParam();
  c_.optim.low_state = moments == "bf16";
  c_.optim.state_8bit = moments == "8 bits";
  c_.optim.optimizer = optimizer;
  c_.sample_tokens = 8;
  c_.eval_every = 10;
  const TrainResult unbroken = train_in("unbroken");
  c_.save_every = 10;
  c_.keep_last = 100;
  train_in("first");
  std::filesystem::remove_all(dir_ / "first/step-00000020");
  c_.threads = 2;
  const TrainResult resumed = train_in("first", true);
  expect_same_checkpoints(unbroken.checkpoint, resumed.checkpoint);
  const io::Checkpoint c = io::load_checkpoint(resumed.checkpoint);
  const io::TensorMap& weights = c.files.at("model");
  EXPECT_EQ(weights.at("blocks.0.attn.qkv.weight").dtype(), DType::bf16);
  EXPECT_EQ(weights.at("norm.weight").dtype(), DType::f32);
  const io::TensorMap& state = c.files.at("optimizer");
  EXPECT_EQ(state.contains("blocks.0.attn.qkv.weight.master"), c_.optim.param_update == "master");
  EXPECT_EQ(state.contains("blocks.0.attn.qkv.weight.compensation"), c_.optim.param_update == "compensated");
  const auto in_8_bits =
      std::ranges::count_if(state, [](const auto& entry) { return entry.second.dtype() == DType::u8; });
  EXPECT_EQ(in_8_bits > 0, c_.optim.state_8bit);
  TokenSampler sampler(load_trained_model(dir_ / "first").model, {1, 2, 3}, {.seed = 1});
  EXPECT_GE(sampler.next(), 0);
}
INSTANTIATE_TEST_SUITE_P(
    Train, Weights16,
    testing::Values(std::tuple{"adamw", "stochastic", "f32"}, std::tuple{"adamw", "stochastic", "bf16"},
                    std::tuple{"adamw", "master", "f32"}, std::tuple{"adamw", "nearest", "f32"},
                    std::tuple{"lion", "stochastic", "f32"}, std::tuple{"muon", "master", "f32"},
                    std::tuple{"muon", "stochastic", "bf16"}, std::tuple{"sgd", "stochastic", "f32"},
                    std::tuple{"adafactor", "stochastic", "f32"}, std::tuple{"adamw", "compensated", "f32"},
                    std::tuple{"adamw", "compensated", "8 bits"}, std::tuple{"adamw", "stochastic", "8 bits"},
                    std::tuple{"muon", "compensated", "8 bits"}, std::tuple{"lion", "master", "8 bits"}));

TEST_F(Trainer, Bf16WeightsLearnAsF32Ones) {
  c_.steps = 150;
  c_.dtype = "bf16";
  c_.optim.lr = 2e-3;
  const auto last_loss = [&](const char* name) {
    train_in(name);
    const std::vector<StepMetrics> m = metrics(name);
    double sum = 0;
    for (size_t i = m.size() - 20; i < m.size(); ++i) sum += m[i].loss / 20;
    return sum;
  };
  const double want = last_loss("f32");
  EXPECT_LT(want, 3);
  c_.param_dtype = "bf16";
  EXPECT_NEAR(last_loss("stochastic"), want, 0.05 * want);
  c_.optim.low_state = true;
  EXPECT_NEAR(last_loss("low_state"), want, 0.05 * want);
  c_.optim.low_state = false;
  c_.optim.param_update = "master";
  EXPECT_NEAR(last_loss("master"), want, 0.03 * want);
  c_.optim.param_update = "compensated";
  EXPECT_NEAR(last_loss("compensated"), want, 0.03 * want);
  c_.optim.state_8bit = true;
  EXPECT_NEAR(last_loss("8 bits"), want, 0.03 * want);
}

TEST_F(Trainer, Fp8LearnsAsBf16AndF32) {
  c_.steps = 120;
  c_.optim.lr = 2e-3;
  const auto last_loss = [&](const char* dtype, const char* scaling) {
    c_.dtype = dtype;
    c_.fp8_scaling = scaling;
    const std::string name = c_.model.family + dtype + scaling;
    train_in(name.c_str());
    const std::vector<StepMetrics> m = metrics(name.c_str());
    double sum = 0;
    for (size_t i = m.size() - 20; i < m.size(); ++i) sum += m[i].loss / 20;
    return sum;
  };
  const double exact = last_loss("f32", "tensor"), fp8 = last_loss("fp8", "tensor");
  EXPECT_LT(exact, 3.5);
  EXPECT_NEAR(last_loss("bf16", "tensor"), exact, 0.01 * exact);
  EXPECT_NEAR(fp8, exact, 0.02 * exact);
  EXPECT_NE(fp8, exact);
  c_.model.family = "llama";
  EXPECT_NEAR(last_loss("fp8", "row"), last_loss("f32", "row"), 0.02 * exact);
}

TEST_F(Trainer, Fp8LeavesOutLayersByName) {
  c_.dtype = "bf16";
  const auto losses = [&](const char* name) {
    train_in(name);
    std::vector<double> all;
    for (const StepMetrics& s : metrics(name)) all.push_back(s.loss);
    return all;
  };
  const std::vector<double> bf16 = losses("bf16");
  c_.dtype = "fp8";
  const std::vector<double> fp8 = losses("fp8");
  EXPECT_NE(fp8, bf16);
  c_.fp8_exclude = "head blocks.0 blocks.1";
  EXPECT_EQ(losses("none"), bf16);
  c_.fp8_exclude = "attn blocks.0.mlp blocks.1.mlp.up";
  const std::vector<double> one = losses("one");
  EXPECT_NE(one, bf16);
  EXPECT_NE(one, fp8);
  c_.fp8_exclude = "block";
  EXPECT_THROW(train_in("wrong"), ValueError);
}

TEST_F(Trainer, ResultDoesNotDependOnThreads) {
  c_.threads = 1;
  const TrainResult one = train_in("one");
  c_.threads = 3;
  const TrainResult three = train_in("three");
  expect_same_checkpoints(one.checkpoint, three.checkpoint);
}

TEST_F(Trainer, StopSavesAndGoesOn) {
  const TrainResult unbroken = train_in("unbroken");
  const TrainResult stopped = train_in("run", false, &stop_now);
  EXPECT_EQ(stopped.step, 1);
  EXPECT_EQ(stopped.status, "stopped at step 1: interrupted");
  EXPECT_FALSE(stopped.finished);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "run/report.html"));
  for (int i = 0; i < 3; ++i) train_in("run", true, &stop_now);
  const TrainResult rest = train_in("run", true);
  EXPECT_EQ(rest.step, 20);
  expect_same_checkpoints(unbroken.checkpoint, rest.checkpoint);
}

TEST_F(Trainer, TimeLimitStopsWithTheLossOfItsStep) {
  c_.max_seconds = 1e-9;
  c_.eval_every = 10;
  const TrainResult r = train_in("run");
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.status, "stopped at step 1: train.max_seconds = 1e-09 has passed");
  EXPECT_EQ(r.valid_step, 1);
  EXPECT_EQ(r.last.valid_loss, r.valid_loss);
  EXPECT_EQ(train_in("run", true).step, 2);
}

// What earlier parts of the run took does not count.
TEST_F(Trainer, TimeLimitCountsFromEachStart) {
  train_in("run", false, &stop_now);
  io::Checkpoint c = io::load_checkpoint(dir_ / "run/step-00000001");
  c.state.at("elapsed_s") = "1000000.000";
  io::save_checkpoint(dir_ / "run", 1, c.files, c.state);
  c_.max_seconds = c_.fit_seconds = 100000;
  const TrainResult r = train_in("run", true);
  EXPECT_EQ(r.step, 20);
  EXPECT_TRUE(r.finished);
  EXPECT_GT(r.last.elapsed_s, 1000000);
}

TEST_F(Trainer, InterruptedRunsSayOfWhichStepTheValidationIs) {
  c_.eval_every = 2;
  static int steps;
  steps = 0;
  const TrainResult r = train_in("run", false, [] { return ++steps == 3; });
  EXPECT_EQ(r.step, 3);
  EXPECT_EQ(r.valid_step, 2);
  EXPECT_TRUE(std::isnan(r.last.valid_loss));
}

// The schedule ends in the steps for which there was time, and the checkpoint says how many those were.
TEST_F(Trainer, ScheduleFitsIntoTheTime) {
  c_.steps = 1000;
  c_.fit_seconds = 1e-6;
  c_.optim.warmup = 100;
  c_.eval_every = 500;
  const TrainResult r = train_in("run");
  EXPECT_TRUE(r.finished);
  EXPECT_EQ(r.status, "finished");
  EXPECT_GE(r.step, 6);
  EXPECT_LE(r.step, 8);
  EXPECT_EQ(r.valid_step, r.step);
  const std::vector<StepMetrics> m = metrics("run");
  ASSERT_EQ(static_cast<int64_t>(m.size()), r.step);
  EXPECT_LT(m.back().lr, c_.optim.lr);
  const TrainConfig saved = find_run(dir_ / "run").state.config;
  EXPECT_EQ(saved.steps, r.step);
  EXPECT_EQ(saved.optim.warmup, 1);
  EXPECT_NEAR(m.back().lr, make_schedule(saved.optim, saved.steps)(r.step - 1), 1e-12);
  // Finished: there is nothing left to go on with, until more steps are asked for.
  c_ = saved;
  EXPECT_EQ(train_in("run", true).step, r.step);
  c_.steps = 10;
  c_.fit_seconds = 100000;
  EXPECT_EQ(train_in("run", true).step, 10);
}

TEST_F(Trainer, TimeEnoughChangesNothing) {
  const TrainResult without = train_in("without");
  c_.fit_seconds = 100000;
  const TrainResult with = train_in("with");
  expect_same_checkpoints(without.checkpoint, with.checkpoint);
}

TEST_F(Trainer, KeepsTheLastCheckpoints) {
  c_.save_every = 3;
  c_.keep_last = 2;
  train_in("run");
  const std::vector<std::string> left = io::list_checkpoints(dir_ / "run");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(left[0].ends_with("step-00000018"));
  EXPECT_TRUE(left[1].ends_with("step-00000020"));
}

TEST_F(Trainer, DivergenceNamesTheOpAndKeepsTheCheckpoint) {
  c_.save_every = 5;
  c_.steps = 5;
  train_in("run");
  // A weight that is not a number, in a checkpoint that is otherwise whole.
  io::Checkpoint c = io::load_checkpoint(dir_ / "run/step-00000005");
  c.files.at("model").at("blocks.1.mlp.up.weight").data<float>()[7] = NAN;
  io::save_checkpoint(dir_ / "run", 5, c.files, c.state);
  c_.steps = 10;
  try {
    train_in("run", true);
    FAIL() << "trained on NaN";
  } catch (const DivergedError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("step 6"), std::string::npos) << text;
    EXPECT_NE(text.find("linear"), std::string::npos) << text;
    EXPECT_NE(text.find("step-00000005"), std::string::npos) << text;
  }
  EXPECT_EQ(io::list_checkpoints(dir_ / "run").size(), 1u);
  EXPECT_EQ(read_metrics(dir_ / "run/metrics.jsonl").size(), 5u);
}

TEST_F(Trainer, RefusesToWriteOverARun) {
  c_.steps = 1;
  train_in("run");
  EXPECT_THROW(train_in("run"), ValueError);
}

TEST_F(Trainer, RefusesAnotherModelOnResume) {
  c_.steps = 1;
  train_in("run");
  c_.model.dim = 64;
  EXPECT_THROW(train_in("run", true), ValueError);
}

TEST_F(Trainer, ResumeWithoutACheckpointStarts) {
  c_.steps = 1;
  EXPECT_EQ(train_in("run", true).step, 1);
}

TEST_F(Trainer, BadDataAndFolders) {
  c_.data.path = dir_ / "nowhere.txt";
  EXPECT_THROW(train_in("a"), IoError);
  io::write_file(dir_ / "tiny.txt", "too short");
  c_.data.path = dir_ / "tiny.txt";
  EXPECT_THROW(train_in("b"), ValueError);
  c_.data.path = dir_ / "text.txt";
  EXPECT_THROW(train_in("text.txt"), IoError);  // a file where the folder should be
  std::filesystem::create_directories(dir_ / "empty");
  c_.data.path = dir_ / "empty";
  EXPECT_THROW(train_in("c"), IoError);
}

TEST_F(Trainer, BytePairsAndFolderOfTexts) {
  std::filesystem::create_directories(dir_ / "texts/more");
  io::write_file(dir_ / "texts/a.txt", sample_text());
  io::write_file(dir_ / "texts/more/b.txt", sample_text());
  c_.data.path = dir_ / "texts";
  c_.data.tokenizer = "bpe";
  c_.model.vocab = 300;
  c_.steps = 3;
  c_.sample_tokens = 5;
  train_in("run");
  const TrainedModel t = load_trained_model(dir_ / "run");
  EXPECT_EQ(t.step, 3);
  EXPECT_LE(t.tokenizer->vocab_size(), 300);
  EXPECT_EQ(t.tokenizer->decode(t.tokenizer->encode("quick brown")), "quick brown");
  EXPECT_LT(t.tokenizer->encode("quick brown").size(), 11u);
  TokenSampler sampler(t.model, t.tokenizer->encode("the"), {.seed = 3});
  for (int i = 0; i < 40; ++i) EXPECT_LT(sampler.next(), 300);
}

TEST_F(Trainer, IdsInTheirOwnOrder) {
  std::string ids;
  for (int i = 0; i < 1000; ++i) ids += std::to_string(i % 300) + (i % 20 == 19 ? "\n" : " ");
  io::write_file(dir_ / "ids.txt", ids);
  c_.data.path = dir_ / "ids.txt";
  c_.data.tokenizer = "ids";
  c_.data.shuffle = false;
  c_.data.valid_fraction = 0;
  EXPECT_THROW(train_in("run"), ValueError);  // how many ids?
  c_.model.vocab = 300;
  const TrainData d = open_train_data(c_, dir_ / "run");
  EXPECT_EQ(d.train_tokens, 1000);
  for (const int64_t epoch : {0, 1}) EXPECT_EQ(d.train->begin_of({.index = 2, .epoch = epoch}), 64);
  c_.steps = 2;
  c_.sample_tokens = 3;
  train_in("run");
  EXPECT_EQ(load_trained_model(dir_ / "run").tokenizer->vocab_size(), 300);
}

TEST_F(Trainer, FirstWeightsOrNone) {
  c_.steps = 2;
  c_.save_first = true;
  const TrainResult r = train_in("run");
  ASSERT_EQ(io::list_checkpoints(dir_ / "run").size(), 2u);
  manual_seed(static_cast<uint64_t>(c_.seed));
  ModelConfig m = c_.model;
  m.vocab = 256;
  const Tensor fresh = make_model(m)->token_embedding.weight;
  const Tensor saved = io::load_checkpoint(dir_ / "run/step-00000000").files.at("model").at("token_embedding.weight");
  EXPECT_EQ(fresh.to_vector<float>(), saved.to_vector<float>());
  EXPECT_GT(r.peak_memory, 0);
  EXPECT_GE(r.peak_reserved, r.peak_memory);
  EXPECT_EQ(read_metrics(dir_ / "run/metrics.jsonl").back().peak_memory, static_cast<double>(r.peak_memory));
  c_.save_first = false;
  c_.save_every = -1;
  EXPECT_TRUE(train_in("none").checkpoint.empty());
  EXPECT_FALSE(has_run(dir_ / "none"));
}

TEST_F(Trainer, ValidationSamplesCoverTheData) {
  const TrainData d = open_train_data(c_, dir_ / "run");
  const auto all = validation_samples(*d.valid, 4, 1000);
  int64_t n = 0;
  for (const auto& batch : all) {
    EXPECT_LE(batch.size(), 4u);
    for (const data::Sample& s : batch) EXPECT_EQ(s.index, n++);
  }
  EXPECT_EQ(n, d.valid->size());
  const auto few = validation_samples(*d.valid, 2, 2);
  EXPECT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0][0].index, 0);
  EXPECT_LT(few[1][1].index, d.valid->size());
}

}  // namespace
}  // namespace strata
