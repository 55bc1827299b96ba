// What a run that was stopped shares with one that was not, and what changes it.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

class Resume : public TrainTest {
 protected:
  Resume() {
    c_.steps = 8;
    c_.accumulate = 2;
    c_.optim.grad_clip = 0.5;
    c_.model.dropout = 0.1;
    std::filesystem::create_directories(dir_ / "disk");
  }
  TrainResult run(const char* name, bool resume = false, bool (*stop)() = nullptr, std::FILE* log = nullptr) {
    return train(c_, {.out = dir_ / name, .resume = resume, .stop_requested = stop, .log = log});
  }
  void use_disk() {
    c_.memory.disk = dir_ / "disk";
    c_.memory.parameters = c_.memory.state = "disk";
  }
};

// By train.max_seconds, by a request to stop, and by a kill between checkpoints: with weights and state elsewhere or
// not.
TEST_F(Resume, StoppedInAnyWayEndsAsUninterrupted) {
  const TrainResult whole = run("whole");
  for (const bool tiers : {false, true}) {
    SCOPED_TRACE(tiers);
    c_.memory = {};
    if (tiers) use_disk();
    const std::string of = tiers ? "-disk" : "";
    c_.max_seconds = 1e-3;
    EXPECT_EQ(run(("seconds" + of).c_str()).step, 1);
    c_.max_seconds = 0;
    EXPECT_EQ(run(("seconds" + of).c_str(), true, [] { return true; }).step, 2);
    const TrainResult last = run(("seconds" + of).c_str(), true);
    EXPECT_TRUE(last.finished);
    expect_same_checkpoints(whole.checkpoint, last.checkpoint);
  }
}

// Killed in the middle of a step after the one that was saved last: no clean-up of any kind runs.
TEST_F(Resume, KilledMidStepEndsAsUninterrupted) {
  // The process that is killed is this test again, with other temporary folders.
  ::setenv("STRATA_KILLED_RUN", (dir_ / "killed").c_str(), 0);
  ::setenv("STRATA_KILLED_DISK", (dir_ / "disk").c_str(), 0);
  const std::string out = ::getenv("STRATA_KILLED_RUN"), disk = ::getenv("STRATA_KILLED_DISK");
  c_.memory.disk = disk;
  c_.memory.parameters = c_.memory.state = "disk";
  c_.save_every = 2;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto killed = [&] {
    static int steps = 0;
    train(c_, {.out = out,
               .stop_requested =
                   [] {
                     if (++steps == 5) ::kill(::getpid(), SIGKILL);
                     return false;
                   },
               .log = nullptr});
  };
  EXPECT_EXIT(killed(), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("STRATA_KILLED_RUN");
  ::unsetenv("STRATA_KILLED_DISK");
  EXPECT_TRUE(std::filesystem::is_empty(disk));
  c_.save_every = 0;
  const TrainResult last = run("killed", true), whole = run("whole");
  EXPECT_TRUE(last.finished);
  expect_same_checkpoints(whole.checkpoint, last.checkpoint);
}

// A schedule is of the whole run: one that was begun with fewer steps had other learning rates, which is said.
TEST_F(Resume, OtherStepsAreAnotherScheduleAndSaid) {
  c_.steps = 3;
  run("first");
  const TrainConfig then = c_;
  c_.steps = 8;
  const io::TempDir logs;
  const std::string log = logs / "log";
  std::FILE* file = std::fopen(log.c_str(), "w");
  ASSERT_NE(file, nullptr);
  const TrainResult longer = run("first", true, nullptr, file);
  std::fclose(file);
  const std::string text = io::read_file(log);
  EXPECT_NE(text.find("train.steps was 3 and is 8: the schedule is another one, by which step 1 would have had"),
            std::string::npos)
      << text;
  const TrainResult whole = run("whole");
  EXPECT_EQ(longer.step, whole.step);
  EXPECT_NE(metrics("first")[0].lr, metrics("whole")[0].lr);
  // What changes nothing of what was done is not told.
  EXPECT_EQ(schedule_change(then, then, 3), "");
  EXPECT_EQ(schedule_change(then, c_, 0), "");
  TrainConfig constant = then, more = c_;
  constant.optim.schedule = more.optim.schedule = "constant";
  constant.optim.warmup = more.optim.warmup = 2;
  EXPECT_EQ(schedule_change(constant, more, 3), "");
  more.optim.lr *= 2;
  EXPECT_NE(schedule_change(constant, more, 3).find("train.lr was "), std::string::npos);
  // Told of what decides the rates alone.
  more.max_seconds = 5;
  EXPECT_EQ(schedule_change(constant, more, 3).find("max_seconds"), std::string::npos);
}

}  // namespace
}  // namespace strata
