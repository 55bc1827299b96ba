#include "strata/train/memory_plan.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TrainConfig config(std::vector<std::string> more = {}) {
  std::vector<std::string> settings{"model.layers=2", "model.dim=64", "model.heads=4", "model.context=64",
                                    "train.batch=16"};
  settings.insert(settings.end(), more.begin(), more.end());
  return parse_config("", "test", settings);
}

int64_t peak(const std::vector<std::string>& more = {}) {
  return estimate_memory(config(more)).peak;
}

// Room for exactly these settings.
MemoryPlan with_room_for(const std::vector<std::string>& settings, const TrainConfig& c = config()) {
  const int64_t program = plan_memory(c, {"test", int64_t{1} << 50, 0}).program;
  return plan_memory(c, {"a test", peak(settings) + program + 1000, 1000});
}

TEST(MemoryPlan, FitsToTheByte) {
  const MemoryPlan plan = with_room_for({});
  EXPECT_TRUE(plan.fits);
  EXPECT_TRUE(plan.fixes.empty());
  EXPECT_EQ(plan.need.peak, peak());
  EXPECT_GT(plan.program, 0);
  EXPECT_FALSE(plan_memory(config(), {"a test", peak() + plan.program - 1, 0}).fits);
  const std::string text = to_text(plan);
  for (const char* word : {"parameters", "peak", "program", "free", "(a test: ", "It fits: "})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

TEST(MemoryPlan, TheSameStepInPartsComesFirst) {
  const MemoryPlan plan = with_room_for({"train.batch=4", "train.accumulate=4"});
  EXPECT_FALSE(plan.fits);
  ASSERT_FALSE(plan.fixes.empty());
  EXPECT_EQ(plan.fixes[0].settings, (std::vector<std::string>{"train.batch=4", "train.accumulate=4"}));
  EXPECT_EQ(plan.fixes[0].peak, peak(plan.fixes[0].settings));
  EXPECT_EQ(to_options(plan.fixes[0]), "--set train.batch=4 train.accumulate=4");
  EXPECT_NE(to_text(plan).find("It does not fit: "), std::string::npos);
  // What is told fits, and each further change needs fewer parts.
  for (const MemoryFix& fix : plan.fixes) EXPECT_LE(fix.peak, plan.bound.free() - plan.program);
  const MemoryPlan half = with_room_for({"train.dtype=bf16"});
  ASSERT_GE(half.fixes.size(), 2u);
  EXPECT_EQ(half.fixes[1].settings, (std::vector<std::string>{"train.dtype=bf16"}));
  EXPECT_EQ(to_options(half.fixes[1]), "--dtype bf16");
}

TEST(MemoryPlan, PartsThatDivideTheBatch) {
  const TrainConfig c = config({"train.batch=9", "train.accumulate=2"});
  const MemoryPlan plan = with_room_for({"train.batch=4"}, c);
  ASSERT_FALSE(plan.fixes.empty());
  EXPECT_EQ(plan.fixes[0].settings, (std::vector<std::string>{"train.batch=3", "train.accumulate=6"}));
}

TEST(MemoryPlan, FewerLayersWhereNothingElseHelps) {
  const TrainConfig c = config({"model.layers=40", "model.dim=128", "train.batch=1"});
  const MemoryPlan plan = with_room_for({"model.layers=4", "model.dim=128", "train.batch=1"}, c);
  ASSERT_EQ(plan.fixes.size(), 1u);
  const std::vector<std::string>& settings = plan.fixes[0].settings;
  EXPECT_TRUE(settings.back().starts_with("model.layers=")) << settings.back();
  EXPECT_GE(std::stoi(settings.back().substr(13)), 4);
  EXPECT_LE(plan.fixes[0].peak, plan.bound.free() - plan.program);
  EXPECT_TRUE(plan_memory(c, {"nothing", 1, 1}).fixes.empty());
  EXPECT_TRUE(plan_memory(config({"model.layers=1"}), {"nothing", 1, 1}).fixes.empty());
}

TEST(MemoryPlan, SettingsThatDoNotGoTogetherAreNotTold) {
  const TrainConfig c = config({"train.dtype=bf16", "train.grad_dtype=bf16", "train.param_update=master"});
  const MemoryPlan plan = with_room_for({"train.batch=2", "train.accumulate=8"}, c);
  for (const MemoryFix& fix : plan.fixes)
    for (const std::string& s : fix.settings) EXPECT_EQ(s.find("train.accumulate"), std::string::npos) << s;
}

}  // namespace
}  // namespace strata
