// parallel.exact in one process: how its settings go together, what its estimate says, and that its micro-batches are
// numbered across accumulated batches. On several ranks: apps/strata/exact_test.cpp.

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/train/estimate.h"
#include "strata/train/exact_step_inl.h"
#include "strata/train/memory_plan.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

TrainConfig config_of(std::vector<std::string> more) {
  more.insert(more.begin(), {"model.layers=2", "model.dim=64", "model.heads=4", "model.context=64", "train.batch=8"});
  return parse_config("", "test", more);
}

TEST(ExactSettings, WhatTheyDoNotServeIsNamed) {
  EXPECT_EQ(config_of({"parallel.exact=4", "parallel.dp=2"}).parallel.exact, 4);
  EXPECT_EQ(ExactStep::refuses(config_of({})), "");
  for (const auto& [settings, piece] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"parallel.exact=3"}, "parallel.exact is 3, which does not divide the 8 rows of train.batch"},
           {{"parallel.exact=4", "parallel.dp=8"}, "parallel.exact is 4, which 8 ranks do not share evenly"},
           {{"parallel.exact=4", "data.format=chat"}, "parallel.exact = 4 is not for data.format = chat"},
           {{"parallel.exact=4", "parallel.cp=2"}, "parallel.exact = 4 is not for parallel.cp = 2"},
           {{"parallel.exact=4", "parallel.zero=2", "parallel.every_pass=false"},
            "parallel.exact = 4 is not for parallel.every_pass = false"},
           {{"parallel.exact=4", "memory.device=1GiB"}, "parallel.exact = 4 is not for [memory]"},
           {{"parallel.exact=2", "train.dtype=fp8"}, "parallel.exact = 2 is not for train.dtype = fp8"}}) {
    try {
      config_of(settings);
      ADD_FAILURE() << piece;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(config_of({"parallel.exact=-1"}), ValueError);
}

TEST(ExactEstimate, IsThatOfPassesAndOfTheSums) {
  const MemoryEstimate passes = estimate_memory(config_of({"train.batch=2", "train.accumulate=4"})),
                       exact = estimate_memory(config_of({"parallel.exact=4"})),
                       both = estimate_memory(config_of({"parallel.exact=4", "train.accumulate=4"}));
  EXPECT_EQ(passes.sums, 0);
  EXPECT_EQ(exact.sums, 2 * 4 * exact.parameter_count);  // of 4 micro-batches two sums, of 16 four
  EXPECT_EQ(both.sums, 4 * 4 * exact.parameter_count);
  EXPECT_EQ(exact.gradients, passes.gradients);
  EXPECT_EQ(exact.parameters, passes.parameters);
  EXPECT_LE(std::abs(exact.activations - passes.activations), passes.activations / 100);
  EXPECT_GE(exact.peak, passes.peak + exact.sums / 2);
  EXPECT_LE(exact.peak, passes.peak + exact.sums + passes.peak / 20);
  EXPECT_EQ(record_dry_step(config_of({"parallel.exact=4"})).tokens, 8 * 64);
  const std::string text = to_text(plan_memory(config_of({"parallel.exact=4"}), {"a test", int64_t{1} << 40, 0}));
  EXPECT_NE(text.find("sums"), std::string::npos) << text;
  EXPECT_NE(text.find("of parallel.exact's micro-batches"), std::string::npos) << text;
  // Less memory by more micro-batches, not by other batches.
  const MemoryPlan tight = plan_memory(config_of({"parallel.exact=2", "model.context=512"}),
                                       {"a test",
                                        estimate_memory(config_of({"parallel.exact=4", "model.context=512"})).peak +
                                            plan_memory(config_of({}), {"a test", 1, 0}).program,
                                        0});
  ASSERT_FALSE(tight.fits);
  ASSERT_FALSE(tight.fixes.empty());
  EXPECT_EQ(tight.fixes[0].settings, std::vector<std::string>{"parallel.exact=4"});
}

class ExactRun : public TrainTest {};

TEST_F(ExactRun, TakesTheMemoryOfTheEstimate) {
  c_.batch = 8;
  c_.model.dim = 96;
  c_.steps = 3;
  const auto peaks = [&](int64_t batch, int64_t accumulate, int64_t exact, const char* out) {
    c_.batch = batch, c_.accumulate = accumulate, c_.parallel.exact = exact;
    const int64_t before = memory::stats(Device::cpu()).live_total;  // what tests before have left is not the run's
    const TrainResult r = train(c_, {.out = dir_ / out, .log = nullptr});
    return std::pair(r.peak_memory - before, estimate_memory(c_).peak);
  };
  const auto [passes, said_of_passes] = peaks(1, 8, 0, "passes");
  const auto [exact, said_of_exact] = peaks(8, 1, 8, "exact");
  // The sums are what it takes more, and no more than the estimate says of it.
  EXPECT_GT(exact, passes);
  EXPECT_LE(static_cast<double>(exact - passes), 1.1 * static_cast<double>(said_of_exact - said_of_passes));
  EXPECT_LE(exact, said_of_exact);
}

TEST_F(ExactRun, IsOneTrainingHoweverOftenItStops) {
  c_.steps = 8;
  c_.accumulate = 2;
  c_.parallel.exact = 2;
  c_.model.dropout = 0.2;
  c_.optim.schedule = "constant";
  c_.optim.warmup = 1;
  const TrainResult whole = train(c_, {.out = dir_ / "whole", .log = nullptr});
  c_.steps = 3;
  train(c_, {.out = dir_ / "parts", .log = nullptr});
  c_.steps = 8;
  const TrainResult parts = train(c_, {.out = dir_ / "parts", .resume = true, .log = nullptr});
  expect_same_checkpoints(whole.checkpoint, parts.checkpoint);
  // Each micro-batch has numbers of its own: with another cut others are dropped.
  c_.parallel.exact = 4;
  const TrainResult other = train(c_, {.out = dir_ / "other", .log = nullptr});
  EXPECT_NE(other.last.loss, whole.last.loss);
  // And the same ones in any run.
  c_.parallel.exact = 2;
  const TrainResult again = train(c_, {.out = dir_ / "again", .log = nullptr});
  expect_same_checkpoints(whole.checkpoint, again.checkpoint);
}

TEST_F(ExactRun, ADivergedStepNamesTheOp) {
  c_.steps = 20;
  c_.parallel.exact = 4;
  c_.optim.optimizer = "sgd";
  c_.optim.lr = 1000;
  c_.optim.warmup = 0;
  c_.optim.grad_clip = 0;
  try {
    train(c_, {.out = dir_ / "run", .log = nullptr});
    ADD_FAILURE() << "it learns with lr = 1000";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("produced"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace strata
