// A rank is killed, and the job goes on: with another process in its place, or with the others alone.

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/strata/ranks_test_util.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

class Survive : public RanksTest {
 protected:
  // Whether it came before the program ended, or two minutes.
  template <class Is>
  static bool wait_until(const std::atomic<bool>& over, Is&& is) {
    for (const auto end = Clock::now() + std::chrono::minutes(2); Clock::now() < end && !over;) {
      if (is()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  // The last step of the run's log; 0 before there is one.
  int64_t last_step(const std::string& out) const {
    if (!std::filesystem::exists((dir_ / out) + "/metrics.jsonl")) return 0;
    const std::vector<StepMetrics> all = metrics(out);
    return all.empty() ? 0 : all.back().step;
  }
  // Runs it on `ranks` ranks by `launch`, and kills ranks when these steps are behind them.
  Result disturbed(int ranks, const std::string& launch, const std::string& out, const std::string& more,
                   const std::vector<std::pair<int64_t, int>>& kills) {
    Result r;
    std::atomic<bool> over = false;
    std::thread program_thread([&] {
      r = strata("launch -n " + std::to_string(ranks) + " " + launch + " -- " + program() + " " + train(out) + more);
      over = true;
    });
    for (const auto& [step, rank] : kills) {
      EXPECT_TRUE(wait_until(over, [&] { return last_step(out) >= 1; }));
      const pid_t pid = rank_process(dir_ / out, rank);  // before its last moment: it takes a while
      EXPECT_TRUE(wait_until(over, [&, s = step] { return last_step(out) >= s; })) << "step " << step;
      EXPECT_GT(pid, 0) << "rank " << rank << " had ended by step " << step;
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    program_thread.join();
    return r;
  }
  // That every step of it is there, once.
  void expect_whole_log(const std::string& out, int64_t steps) const {
    const std::vector<StepMetrics> all = metrics(out);
    ASSERT_EQ(static_cast<int64_t>(all.size()), steps);
    for (int64_t i = 0; i < steps; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].step, i + 1);
  }
  const std::string settings_ = "--set model.dropout=0.1 --set train.save_every=0 --steps 50 ";
};

TEST_F(Survive, AnotherProcessTakesThePlaceAndTheMirroredStepComesBack) {
  const Result whole = strata(on(2, "whole") + settings_);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result r = disturbed(2, "--restarts 3", "killed", settings_ + "--set parallel.mirror=2 ", {{10, 1}, {25, 0}});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
  expect_whole_log("killed", 50);
  EXPECT_NE(r.output.find("strata: rank 1 ("), r.output.npos) << r.output;
  EXPECT_NE(r.output.find("was killed by SIGKILL; another process takes its place (1 of 3)"), r.output.npos)
      << r.output;
  EXPECT_NE(r.output.find("another process takes its place (2 of 3)"), r.output.npos) << r.output;
  EXPECT_NE(r.output.find("from the ranks' memory"), r.output.npos) << r.output;
  EXPECT_FALSE(std::filesystem::exists((dir_ / "killed") + "/step-00000010"));
}

// What a rank alone has comes back from its neighbour.
TEST_F(Survive, PartsComeBackFromTheNeighbour) {
  const std::string more = settings_ + "--set parallel.zero=3 --set train.batch=9 --set parallel.mirror=1 ";
  const Result whole = strata(on(3, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result r = disturbed(3, "--restarts 1", "killed", more, {{20, 2}});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
  EXPECT_NE(r.output.find("from the ranks' memory"), r.output.npos) << r.output;
}

TEST_F(Survive, WithoutAMirrorTheCheckpointComesBack) {
  const std::string more = "--set model.dropout=0.1 --set train.save_every=10 --steps 50 ";
  const Result whole = strata(on(2, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result r = disturbed(2, "--restarts 1", "killed", more, {{25, 0}});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
  EXPECT_NE(r.output.find("/killed/step-000000"), r.output.npos) << r.output;
}

// parallel.exact: the same bits with fewer ranks.
TEST_F(Survive, TheOthersGoOnAlone) {
  const std::string more = settings_ + "--set parallel.exact=4 --set parallel.mirror=1 ";
  const Result whole = strata(on(2, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result r = disturbed(2, "--min-ranks 1", "killed", more, {{20, 0}});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
  EXPECT_NE(r.output.find("was killed by SIGKILL; 1 rank goes on"), r.output.npos) << r.output;
  EXPECT_NE(r.output.find("finished: 50 steps"), r.output.npos) << r.output;
}

TEST_F(Survive, ABatchIsSharedOutAmongThoseThatAreLeft) {
  const std::string more = "--set train.save_every=0 --set train.batch=9 --set parallel.mirror=1 --steps 50 ";
  const Result whole = strata(on(3, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result r = disturbed(3, "--min-ranks 2", "killed", more, {{20, 1}});
  ASSERT_EQ(r.status, 0) << r.output;
  const auto want = metrics("whole"), got = metrics("killed");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
  // One more, and there are too few.
  const Result few = disturbed(3, "--min-ranks 3 --grace 1", "few", more, {{10, 1}});
  EXPECT_NE(few.status, 0);
  EXPECT_NE(few.output.find("strata: error: rank 1 ("), few.output.npos) << few.output;
}

}  // namespace
}  // namespace strata::cli
