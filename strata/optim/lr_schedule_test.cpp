// Schedules against their formulas written out, and PyTorch's way step by step against the function of the step.

#include "strata/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::optim {
namespace {

using Options = std::vector<std::pair<std::string, ScheduleValue>>;

// Options with which each says something.
Options options_for(std::string_view name) {
  if (name == "CosineAnnealingLR") return {{"T_max", 7.0}, {"eta_min", 0.01}};
  if (name == "CosineAnnealingWarmRestarts") return {{"T_0", 4.0}, {"T_mult", 2.0}, {"eta_min", 0.01}};
  if (name == "CyclicLR") return {{"base_lr", 0.1}, {"max_lr", 0.5}, {"step_size_up", 4.0}};
  if (name == "ExponentialLR") return {{"gamma", 0.9}};
  if (name == "MultiStepLR") return {{"milestones", std::vector<double>{3, 5, 5, 11}}, {"gamma", 0.5}};
  if (name == "OneCycleLR") return {{"max_lr", 0.5}, {"total_steps", 30.0}};
  if (name == "PolynomialLR") return {{"total_iters", 40.0}, {"power", 2.0}};
  if (name == "SWALR") return {{"swa_lr", 0.02}};
  if (name == "StepLR") return {{"step_size", 4.0}, {"gamma", 0.5}};
  if (name == "constant") return {{"warmup", 3.0}};
  if (name == "cosine" || name == "linear") return {{"warmup", 3.0}, {"total", 20.0}, {"min_ratio", 0.1}};
  if (name == "wsd") return {{"warmup", 3.0}, {"total", 20.0}, {"min_ratio", 0.1}, {"decay", 6.0}};
  if (name == "one_cycle") return {{"total", 20.0}};
  return {};
}

TEST(LrSchedules, StepByStepIsTheFunctionOfTheStep) {
  EXPECT_EQ(schedule_records().size(), 16u);
  for (const ScheduleRecord& r : schedule_records()) {
    const LrSchedule s(r.name, options_for(r.name));
    const double base = 0.1;
    double now = s.next(0, base, base);
    EXPECT_NEAR(now, s(0, base), 1e-15) << r.name;
    for (int step = 1; step <= 25; ++step) {
      now = s.next(step, now, base);
      EXPECT_NEAR(now, s(step, base), 1e-13) << r.name << ' ' << step;
    }
  }
}

TEST(LrSchedules, AreTheirFormulas) {
  const auto pi = std::numbers::pi;
  for (int step = 0; step < 20; ++step) {
    const double t = step;
    EXPECT_DOUBLE_EQ(LrSchedule("StepLR", {{"step_size", 4.0}, {"gamma", 0.5}})(step, 1), std::pow(0.5, step / 4));
    EXPECT_DOUBLE_EQ(LrSchedule("ConstantLR", {{"factor", 0.25}, {"total_iters", 3.0}})(step, 2), step < 3 ? 0.5 : 2);
    EXPECT_NEAR(LrSchedule("LinearLR", {{"start_factor", 0.2}, {"total_iters", 8.0}})(step, 1),
                step >= 8 ? 1 : 0.2 + 0.8 * t / 8, 1e-15);
    EXPECT_NEAR(LrSchedule("PolynomialLR", {{"total_iters", 10.0}, {"power", 3.0}})(step, 1),
                step >= 10 ? 0 : std::pow(1 - t / 10, 3), 1e-15);
    EXPECT_NEAR(LrSchedule("CosineAnnealingLR", {{"T_max", 7.0}, {"eta_min", 0.1}})(step, 1),
                0.1 + 0.45 * (1 + std::cos(pi * t / 7)), 1e-15);
    const int at = step < 4 ? step : (step - 4) % 8, length = step < 4 ? 4 : 8;
    if (step < 12) {
      EXPECT_NEAR(LrSchedule("CosineAnnealingWarmRestarts", {{"T_0", 4.0}, {"T_mult", 2.0}})(step, 1),
                  (1 + std::cos(pi * at / length)) / 2, 1e-15);
    }
    const double height = step % 8 <= 4 ? (step % 8) / 4.0 : (8 - step % 8) / 4.0;
    const Options cycle{{"base_lr", 0.1}, {"max_lr", 0.5}, {"step_size_up", 4.0}};
    EXPECT_NEAR(LrSchedule("CyclicLR", cycle)(step, 0), 0.1 + 0.4 * height, 1e-15);
    EXPECT_NEAR(LrSchedule("CyclicLR", cycle).momentum(step), 0.9 - 0.1 * height, 1e-15);
    Options halved = cycle, shrinking = cycle;
    halved.emplace_back("mode", std::string("triangular2"));
    shrinking.emplace_back("mode", std::string("exp_range"));
    shrinking.emplace_back("gamma", 0.9);
    EXPECT_NEAR(LrSchedule("CyclicLR", halved)(step, 0), 0.1 + 0.4 * height / std::pow(2, step / 8), 1e-15);
    EXPECT_NEAR(LrSchedule("CyclicLR", shrinking)(step, 0), 0.1 + 0.4 * height * std::pow(0.9, step), 1e-15);
  }
  const LrSchedule one("OneCycleLR", {{"max_lr", 1.0}, {"total_steps", 10.0}, {"pct_start", 0.4}});
  EXPECT_NEAR(one(0, 0), 1.0 / 25, 1e-15);
  EXPECT_DOUBLE_EQ(one(3, 0), 1.0);
  EXPECT_NEAR(one(9, 0), 1.0 / 25 / 1e4, 1e-15);
  EXPECT_DOUBLE_EQ(one.momentum(0), 0.95);
  EXPECT_DOUBLE_EQ(one.momentum(3), 0.85);
  EXPECT_THROW(one(11, 0), ValueError);
  const LrSchedule three("OneCycleLR",
                         {{"max_lr", 1.0}, {"total_steps", 10.0}, {"pct_start", 0.4}, {"three_phase", 1.0}});
  EXPECT_NEAR(three(6, 0), 1.0 / 25, 1e-15);
  EXPECT_DOUBLE_EQ(three.momentum(6), 0.95);
}

TEST(LrSchedules, Compose) {
  const std::vector<LrSchedule> parts{{"ConstantLR", {{"factor", 0.1}, {"total_iters", 100.0}}},
                                      {"ExponentialLR", {{"gamma", 0.5}}}};
  const std::vector<int64_t> milestones{3};
  EXPECT_DOUBLE_EQ(sequential(parts, milestones, 2, 1), 0.1);
  EXPECT_DOUBLE_EQ(sequential(parts, milestones, 3, 1), 1);
  EXPECT_DOUBLE_EQ(sequential(parts, milestones, 5, 1), 0.25);
  EXPECT_DOUBLE_EQ(chained(parts, 2, 1), 0.025);
  EXPECT_THROW(sequential(parts, {}, 0, 1), ValueError);
}

TEST(LrSchedules, RefuseWhatMakesNoSense) {
  EXPECT_THROW(LrSchedule("StepsLR", {}), ValueError);
  EXPECT_THROW(LrSchedule("StepLR", {}), ValueError);
  EXPECT_THROW(LrSchedule("StepLR", {{"step_size", 0.0}}), ValueError);
  EXPECT_THROW(LrSchedule("StepLR", {{"step_size", 1.0}, {"gama", 0.1}}), ValueError);
  EXPECT_THROW(LrSchedule("StepLR", {{"step_size", std::string("1")}}), ValueError);
  EXPECT_THROW(LrSchedule("StepLR", {{"step_size", static_cast<double>(NAN)}}), ValueError);
  EXPECT_THROW(LrSchedule("LinearLR", {{"start_factor", 0.0}}), ValueError);
  EXPECT_THROW(LrSchedule("CyclicLR", {{"base_lr", 0.0}, {"max_lr", 1.0}, {"mode", std::string("square")}}),
               ValueError);
  EXPECT_THROW(LrSchedule("ExponentialLR", {{"gamma", 0.5}})(-1, 1), ValueError);
}

TEST(LrSchedules, AreSortedAndTheirOptionsSaid) {
  EXPECT_TRUE(std::ranges::is_sorted(schedule_records(), {}, &ScheduleRecord::name));
  for (const ScheduleRecord& r : schedule_records()) {
    EXPECT_FALSE(r.doc.empty()) << r.name;
    for (const ScheduleOption& o : r.options) EXPECT_FALSE(o.doc.empty()) << r.name << ' ' << o.name;
  }
}

TEST(LrSchedules, OfARunBeginAfterItsWarmup) {
  const RunSchedule s(LrSchedule("StepLR", {{"step_size", 2.0}, {"gamma", 0.5}}), 0.8, 4);
  EXPECT_EQ(s(0), 0.2);
  EXPECT_EQ(s(3), 0.8);
  EXPECT_EQ(s(5), 0.8);
  EXPECT_EQ(s(6), 0.4);
  EXPECT_THROW(s(-1), ValueError);
}

TEST(LrSchedules, TakeOptionsAsText) {
  const ScheduleRecord& steps = schedule_record("MultiStepLR");
  const Options found = schedule_options(steps, "  milestones=3,5 gamma=0.5\n");
  EXPECT_EQ(found, (Options{{"milestones", std::vector<double>{3, 5}}, {"gamma", 0.5}}));
  EXPECT_EQ(LrSchedule("MultiStepLR", found)(4, 1), 0.5);
  EXPECT_TRUE(schedule_options(steps, "").empty());
  EXPECT_EQ(schedule_options(schedule_record("CyclicLR"), "mode=triangular2"),
            (Options{{"mode", std::string("triangular2")}}));
  for (const char* wrong : {"gama=1", "gamma", "gamma=", "gamma=x", "gamma=1,2", "milestones=1,,2", "gamma=0.5;"})
    EXPECT_THROW(schedule_options(steps, wrong), ValueError) << wrong;
}

TEST(Plateau, LowersTheRateWhereNothingGetsBetter) {
  Plateau p{.factor = 0.5, .patience = 1, .cooldown = 1};
  EXPECT_FALSE(p.step(1.0));
  EXPECT_FALSE(p.step(0.99999));  // within the threshold
  EXPECT_TRUE(p.step(1.0));
  EXPECT_FALSE(p.step(1.0));  // cooling
  EXPECT_FALSE(p.step(1.0));
  EXPECT_TRUE(p.step(NAN));
  EXPECT_EQ(p.best, 1.0);
  EXPECT_EQ(p.lowered(1, 0.7), 0.7);
  EXPECT_EQ(p.lowered(1e-9, 0), 1e-9);  // a change below eps is none
  Plateau up{.largest = true, .patience = 0, .threshold = 0.1, .relative = false};
  EXPECT_FALSE(up.step(-1));
  EXPECT_TRUE(up.step(-0.95));
  EXPECT_FALSE(up.step(-0.8));
  EXPECT_THROW(Plateau{.factor = 1}.validate(), ValueError);
}

}  // namespace
}  // namespace strata::optim
