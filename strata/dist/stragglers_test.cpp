// Who waits least while others wait for it.

#include "strata/dist/stragglers_inl.h"

#include <gtest/gtest.h>

#include <thread>

#include "strata/dist/collectives/collectives.h"
#include "strata/dist/pages_inl.h"
#include "strata/dist/processes_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The rank that is named of ranks with these shares of their time in collectives; -1 for none.
int named(const std::vector<double>& shares) {
  std::vector<RankState> ranks(shares.size());
  for (size_t r = 0; r < shares.size(); ++r) {
    ranks[r].last.rank = static_cast<int>(r);
    ranks[r].share = shares[r];
  }
  detail::name_straggler(ranks);
  for (const RankState& s : ranks)
    if (s.straggler) return s.last.rank;
  return -1;
}

TEST(Stragglers, AreNamedWhereMostWaitMuchMore) {
  EXPECT_EQ(named({0.5, 0.02, 0.55, 0.5}), 1);
  EXPECT_EQ(named({0.5, 0.1}), 1);
  EXPECT_EQ(named({0.1, 0.5}), 0);
  EXPECT_EQ(named({0.3, 0.3, 0.3}), -1);    // all wait for the wires
  EXPECT_EQ(named({0.3, 0.2, 0.3}), -1);    // two thirds of what others do
  EXPECT_EQ(named({0.08, 0.0, 0.08}), -1);  // too little to matter
  EXPECT_EQ(named({0.0, 0.0, 0.6}), -1);    // most compute: one that has less to do is not waited for by most
  EXPECT_EQ(named({0.5, -1, 0.0}), -1);     // not all are known
  EXPECT_EQ(named({0.7}), -1);
  EXPECT_EQ(named({}), -1);
}

TEST(Stragglers, SharesAreOfAWindowInWhichAStepEnded) {
  detail::Waits waits;
  const milliseconds window(10000);
  const Clock::time_point begin = Clock::now();
  const auto add = [&](int second, double waited, int64_t step) {
    waits.add(begin + std::chrono::seconds(second), waited, step, window);
  };
  for (int s = 0; s < 10; ++s) add(s, 0.5 * s, s);
  EXPECT_EQ(waits.share(window), -1);  // not ten seconds yet
  for (int s = 10; s <= 20; ++s) add(s, 5 + 0.1 * (s - 10), s);
  EXPECT_NEAR(waits.share(window), 0.1, 1e-9);
  for (int s = 21; s <= 40; ++s) add(s, 6, 20);  // a long step: from before it on
  EXPECT_NEAR(waits.share(window), 0.1 / 21, 1e-9);
  add(41, 6 + 4.2, 21);
  EXPECT_NEAR(waits.share(window), 0.42, 1e-9);
  add(42, 0, 0);  // another process
  EXPECT_EQ(waits.share(window), -1);
  detail::Waits outside;
  for (int s = 0; s < 30; ++s) outside.add(begin + std::chrono::seconds(s), s, -1, window);
  EXPECT_EQ(outside.share(window), -1);
}

TEST(Stragglers, TheRecorderCountsTimeInCollectivesOnce) {
  FlightRecorder recorder(2);
  EXPECT_EQ(recorder.waited(), 0);
  const uint64_t a = recorder.begin("dp", 1, "x"), b = recorder.begin("tp", 1, "x");
  std::this_thread::sleep_for(milliseconds(30));
  recorder.end(a);
  recorder.end(b);
  const double both = recorder.waited();
  EXPECT_GE(both, 0.03);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(recorder.waited(), both);
  // Those that are forgotten before they end do not run for ever.
  for (uint64_t i = 2; i < 6; ++i) recorder.end(recorder.begin("dp", i, "y"));
  recorder.begin("dp", 6, "z");
  recorder.begin("dp", 7, "z");
  recorder.end(recorder.begin("dp", 8, "z"));
  recorder.end(recorder.begin("dp", 9, "z"));
  const double after = recorder.waited();
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(recorder.waited(), after);
  recorder.begin("dp", 10, "of a group that is gone");
  recorder.end_all("the job had failed");
  const double ended = recorder.waited();
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(recorder.waited(), ended);
  EXPECT_EQ(recorder.now().error, "the job had failed");
}

// Ranks that sleep for this long a step, then meet, until the parent has seen what it looks for.
void work(int rank, const std::vector<int>& sleeps) {
  for (int step = 0; step < 1000; ++step) {
    recorder().set_step(step);
    std::this_thread::sleep_for(milliseconds(sleeps[static_cast<size_t>(rank)]));
    const auto over = static_cast<double>(store().add("over", 0));
    if (all_reduce(full({1}, over), "max").item() > 0) return;
  }
}

TEST(Stragglers, ASlowRankIsNamedOnThePagesAndToPeople) {
  std::string text, news, again, status, metrics;
  const auto watch = [&](Coordinator& coordinator) {
    detail::StragglerNews told;
    for (const auto end = Clock::now() + std::chrono::seconds(30); text.empty() && Clock::now() < end;) {
      std::this_thread::sleep_for(milliseconds(20));
      const std::vector<RankState> ranks = coordinator.ranks();
      text = straggler_text(ranks);
      news = told.take(ranks);
      again = told.take(ranks);
      status = detail::status_page(ranks);
      metrics = detail::metrics_page(ranks);
    }
    coordinator.store().add("over", 1);
  };
  on_processes(3, [](int rank) { work(rank, {50, 50, 250}); }, {.window = milliseconds(1000), .watch = watch});
  if (std::getenv("STRATA_RANKS_OF_TEST") != nullptr) return;
  EXPECT_TRUE(text.starts_with("rank 2 (")) << text;
  EXPECT_NE(text.find(" is waited for: it spends "), std::string::npos) << text;
  EXPECT_EQ(news, text);
  EXPECT_EQ(again, "");
  EXPECT_NE(status.find("<p>rank 2 ("), std::string::npos) << status;
  EXPECT_NE(metrics.find("strata_rank_straggler{rank=\"2\","), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"} 1\n", metrics.find("strata_rank_straggler{rank=\"2\",")), std::string::npos) << metrics;
}

TEST(Stragglers, AmongEqualsNobodyIsNamed) {
  std::string text;
  double least = -1;
  const auto watch = [&](Coordinator& coordinator) {
    // Until the shares have been known for a while.
    const auto end = Clock::now() + std::chrono::seconds(30);
    for (int known = 0; known < 20 && text.empty() && Clock::now() < end;) {
      std::this_thread::sleep_for(milliseconds(50));
      const std::vector<RankState> ranks = coordinator.ranks();
      text = straggler_text(ranks);
      least = std::ranges::min(ranks, {}, &RankState::share).share;
      known += least >= 0;
    }
    coordinator.store().add("over", 1);
  };
  on_processes(3, [](int rank) { work(rank, {100, 100, 100}); }, {.window = milliseconds(1000), .watch = watch});
  if (std::getenv("STRATA_RANKS_OF_TEST") != nullptr) return;
  EXPECT_EQ(text, "");
  EXPECT_GE(least, 0) << "no shares were known";
}

}  // namespace
}  // namespace strata::distributed
