#include "strata/dist/recorder.h"

#include <gtest/gtest.h>

namespace strata::distributed {
namespace {

RankView view(int rank, uint64_t sequence, const std::string& what, bool inside, std::string failure = {}) {
  RankView v{rank, "a", 100 + rank, std::move(failure), false, {}, inside ? 12.0 : 0.0};
  v.last.group = "dp";
  v.last.sequence = sequence;
  v.last.what = what;
  v.last.step = 4;
  v.last.ended = inside ? 0 : 1;
  return v;
}
const std::string kSum = "all_reduce(sum) f32 [8]", kMax = "all_reduce(max) f32 [8]";
const std::vector<int> kAll{0, 1, 2, 3};

TEST(Recorder, ALineIsReadAsItWasWritten) {
  CollectiveEntry e{"dp+cp", 17, "all_reduce(sum) f32 [4, 1024]", "linear in blocks.3", 12, 5, 0, {}};
  for (const double ended : {0.0, 1.0}) {
    for (const int64_t step : {int64_t{-1}, int64_t{12}}) {
      for (const char* holder : {"", "linear in blocks.3"}) {
        e.ended = ended, e.step = step, e.holder = holder;
        const CollectiveEntry r = entry_of(line_of(e));
        EXPECT_EQ(r.group, e.group);
        EXPECT_EQ(r.sequence, e.sequence);
        EXPECT_EQ(r.what, e.what);
        EXPECT_EQ(r.holder, e.holder);
        EXPECT_EQ(r.step, e.step);
        EXPECT_EQ(r.ended != 0, ended != 0);
      }
    }
  }
  for (const char* garbage : {"", "in ", "in #", "in dp #x: y", "after", "no collective yet", "in  #1: "}) {
    EXPECT_TRUE(entry_of(garbage).group.empty()) << garbage;
  }
}

TEST(Recorder, KeepsTheLastAndKnowsWhatRuns) {
  FlightRecorder r(3);
  EXPECT_TRUE(r.now().group.empty());
  const uint64_t first = r.begin("dp", 1, "a");
  r.set_step(7);
  const uint64_t second = r.begin("tp", 1, "b");
  EXPECT_EQ(r.now().what, "a");
  r.end(first);
  EXPECT_EQ(r.now().what, "b");
  EXPECT_EQ(r.now().step, 7);
  r.end(second, "broke");
  EXPECT_EQ(r.now().error, "broke");
  EXPECT_EQ(line_of(r.now()).substr(0, 8), "in tp #1");
  for (int i = 0; i < 5; ++i) r.end(r.begin("dp", 2, "c"));
  EXPECT_EQ(r.entries().size(), 3U);
  r.end(first);  // long gone
  EXPECT_EQ(r.entries().size(), 3U);
}

TEST(Explain, NamesTheDead) {
  const std::string text = explain("dp", kAll,
                                   {view(0, 7, kSum, true), view(1, 7, kSum, true), view(2, 6, kSum, false, "no heartbeat"),
                                    view(3, 7, kSum, true)});
  EXPECT_EQ(text.substr(0, text.find('\n')), "rank 2 (a, pid 102): no heartbeat");
  EXPECT_NE(text.find("\n  rank 0 (a, pid 100): in " + kSum + " (dp #7), step 4, waiting for 12 s"), std::string::npos)
      << text;
}

TEST(Explain, WhoIsBehindADeadRankIsNotToBlame) {
  const std::string text = explain("dp", kAll,
                                   {view(0, 8, kSum, true), view(1, 7, kSum, true), view(2, 6, kSum, false, "no heartbeat"),
                                    view(3, 7, kSum, true)});
  EXPECT_EQ(text.substr(0, text.find('\n')), "rank 2 (a, pid 102): no heartbeat");
}

TEST(Explain, NamesWhoDiffersFromMost) {
  const std::string text = explain("dp", kAll, {view(0, 7, kSum, true), view(1, 7, kMax, true), view(2, 7, kSum, true),
                                                view(3, 7, kSum, true)});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "rank 1 called " + kMax + " where ranks 0, 2 and 3 called " + kSum);
}

TEST(Explain, NamesWhoIsWaitedFor) {
  const std::string text = explain("dp", kAll, {view(0, 7, kSum, true), view(1, 7, kSum, true), view(2, 7, kSum, true),
                                                view(3, 6, kSum, false)});
  EXPECT_EQ(text.substr(0, text.find('\n')), "ranks 0, 1 and 2 wait for rank 3");
}

TEST(Explain, OneRankAheadOfAnotherInACollective) {
  // Rank 3 is still in #6, which the others have left.
  const std::string text = explain("dp", kAll, {view(0, 7, kSum, true), view(1, 7, kSum, true), view(2, 7, kSum, true),
                                                view(3, 6, kMax, true)});
  EXPECT_EQ(text.substr(0, text.find('\n')), "ranks 0, 1 and 2 wait for rank 3");
}

TEST(Explain, RanksOfOtherGroupsAreListedAndNotBlamed) {
  const std::string text = explain("dp", {0, 1}, {view(0, 7, kSum, true), view(1, 6, kSum, false), view(2, 2, kMax, false)});
  EXPECT_EQ(text.substr(0, text.find('\n')), "rank 0 waits for rank 1");
  EXPECT_NE(text.find("\n  rank 2 "), std::string::npos);
}

}  // namespace
}  // namespace strata::distributed
