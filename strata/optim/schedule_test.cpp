#include "strata/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::optim {
namespace {

TEST(Schedule, ConstantWarmsUpLinearlyFromTheFirstStep) {
  const Schedule s = Schedule::constant(0.5, 4);
  EXPECT_DOUBLE_EQ(s(0), 0.125);
  EXPECT_DOUBLE_EQ(s(1), 0.25);
  EXPECT_DOUBLE_EQ(s(3), 0.5);
  EXPECT_DOUBLE_EQ(s(4), 0.5);
  EXPECT_DOUBLE_EQ(s(1'000'000), 0.5);
  EXPECT_DOUBLE_EQ(Schedule::constant(0.5)(0), 0.5);
}

TEST(Schedule, CosineAtItsKeyPoints) {
  const Schedule s = Schedule::cosine(1.0, 110, 10, 0.1);
  EXPECT_DOUBLE_EQ(s(9), 1.0);
  EXPECT_DOUBLE_EQ(s(10), 1.0);
  EXPECT_NEAR(s(60), 0.55, 1e-12);                          // half way
  EXPECT_NEAR(s(35), 0.1 + 0.9 * 0.85355339059327, 1e-12);  // a quarter: (1 + cos 45 degrees) / 2
  EXPECT_NEAR(s(110), 0.1, 1e-12);
  EXPECT_NEAR(s(10'000), 0.1, 1e-12);
  for (int64_t i = 10; i < 110; ++i) EXPECT_GT(s(i), s(i + 1));
}

TEST(Schedule, LinearFallsInAStraightLine) {
  const Schedule s = Schedule::linear(2.0, 20, 0, 0.5);
  EXPECT_DOUBLE_EQ(s(0), 2.0);
  EXPECT_DOUBLE_EQ(s(10), 1.5);
  EXPECT_DOUBLE_EQ(s(20), 1.0);
  EXPECT_DOUBLE_EQ(s(21), 1.0);
}

TEST(Schedule, WarmupStableDecay) {
  const Schedule s = Schedule::wsd(1.0, 100, 10, 20, 0.0);
  EXPECT_DOUBLE_EQ(s(4), 0.5);
  EXPECT_DOUBLE_EQ(s(10), 1.0);
  EXPECT_DOUBLE_EQ(s(79), 1.0);
  EXPECT_DOUBLE_EQ(s(80), 1.0);
  EXPECT_DOUBLE_EQ(s(90), 0.5);
  EXPECT_DOUBLE_EQ(s(100), 0.0);
}

TEST(Schedule, OneCycleRisesAndFalls) {
  const Schedule s = Schedule::one_cycle(1.0, 100, 0.3);
  EXPECT_NEAR(s(0), 1.0 / 25, 1e-12);
  EXPECT_NEAR(s(29), 1.0, 1e-12);
  EXPECT_NEAR(s(99), 1.0 / 25 / 1e4, 1e-12);
  EXPECT_NEAR(s(14), (1 + 0.04) / 2, 0.05);
  for (int64_t i = 0; i < 29; ++i) EXPECT_LT(s(i), s(i + 1));
  for (int64_t i = 29; i < 99; ++i) EXPECT_GT(s(i), s(i + 1));
  EXPECT_NEAR(s(500), s(99), 1e-15);
}

TEST(Schedule, ShortestRunsStayFinite) {
  EXPECT_DOUBLE_EQ(Schedule::cosine(1.0, 1)(0), 1.0);
  EXPECT_DOUBLE_EQ(Schedule::cosine(1.0, 5, 5, 0.1)(5), 0.1);
  EXPECT_DOUBLE_EQ(Schedule::one_cycle(1.0, 1, 1.0)(0), 1.0);  // the only step is the peak
  EXPECT_DOUBLE_EQ(Schedule::wsd(1.0, 4, 0, 0)(3), 1.0);
}

// Runs go on from checkpoints that others made: every rate is the same to the last bit as in the first version.
TEST(Schedule, KeepsItsBits) {
  const auto half_cosine = [](double from, double to, double part) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
  };
  const auto progress = [](int64_t step, double begin, double end) {
    return end <= begin ? (static_cast<double>(step) < end ? 0.0 : 1.0)
                        : std::clamp((static_cast<double>(step) - begin) / (end - begin), 0.0, 1.0);
  };
  const double lr = 3e-4;
  for (const int64_t warmup : {0, 7, 50}) {
    for (const int64_t total : {50, 83}) {
      const auto begin = static_cast<double>(warmup), end = static_cast<double>(total);
      const int64_t decay = std::min<int64_t>(total - warmup, 17);
      const double last = lr * 0.1, peak = 0.3 * end - 1;
      for (int64_t i = 0; i < total + 5; ++i) {
        const double up = lr * static_cast<double>(i + 1) / begin;
        const bool rises = i < warmup;
        EXPECT_EQ(Schedule::constant(lr, warmup)(i), rises ? up : lr);
        EXPECT_EQ(Schedule::linear(lr, total, warmup, 0.1)(i), rises ? up : lr + (last - lr) * progress(i, begin, end));
        EXPECT_EQ(Schedule::cosine(lr, total, warmup, 0.1)(i),
                  rises ? up : half_cosine(lr, last, progress(i, begin, end)));
        EXPECT_EQ(Schedule::wsd(lr, total, warmup, decay, 0.1)(i),
                  rises ? up : lr + (last - lr) * progress(i, end - static_cast<double>(decay), end));
        EXPECT_EQ(Schedule::one_cycle(lr, total)(i), static_cast<double>(i) <= peak
                                                         ? half_cosine(lr / 25, lr, progress(i, 0, peak))
                                                         : half_cosine(lr, lr / 25 / 1e4, progress(i, peak, end - 1)));
      }
    }
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Schedule::cosine(1, 10, 11), ValueError);
  EXPECT_THROW(Schedule::cosine(-1, 10), ValueError);
  EXPECT_THROW(Schedule::wsd(1, 10, 5, 6), ValueError);
  EXPECT_THROW(Schedule::constant(1)(-1), ValueError);
  EXPECT_EQ(Schedule::kind_of("wsd"), Schedule::Kind::wsd);
  try {
    Schedule::kind_of("cosin");
    FAIL() << "no error";
  } catch (const ValueError& e) {
    EXPECT_STREQ(e.what(), "Schedule: 'cosin' is not one of: constant linear cosine wsd one_cycle");
  }
}

}  // namespace
}  // namespace strata::optim
