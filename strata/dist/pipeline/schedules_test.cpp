#include "strata/dist/pipeline/schedules.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::distributed::pipeline {
namespace {

struct Sizes {
  const ScheduleRecord& record;
  int ranks, chunks, micro_batches;
};

// All schedules for 1 to 8 ranks, 1 to 32 micro-batches, 1 to 4 stages a rank.
template <class F>
void for_all(const F& f) {
  for (const ScheduleRecord& record : schedule_records()) {
    const int most = record.most_stages == 0 ? 4 : record.most_stages;
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int chunks = record.least_stages; chunks <= most; ++chunks)
        for (int m = 1; m <= 32; ++m) {
          SCOPED_TRACE(testing::Message() << record.name << ", " << ranks << " ranks, " << chunks << " stages each, "
                                          << m << " micro-batches");
          f(Sizes{record, ranks, chunks, m}, make_table(record.name, ranks, m, chunks));
        }
  }
}

TEST(Schedules, AreProvedForAllSizes) {
  for_all([](const Sizes& s, const Table& t) {
    const Proof proof = prove(t);
    EXPECT_EQ(t.stages, s.ranks * s.chunks);
    EXPECT_LE(proof.buffers, std::max(1, s.micro_batches));
    // With as many, and with any number more, it runs; with fewer it does not.
    EXPECT_EQ(prove(t, proof.buffers).live, proof.live);
    EXPECT_NO_THROW(prove(t, proof.buffers + 1));
    if (proof.buffers > 1) {
      EXPECT_THROW(prove(t, proof.buffers - 1), ValueError);
    }
    size_t actions = 0;
    for (const auto& all : t.actions) actions += all.size();
    EXPECT_EQ(actions, static_cast<size_t>(t.stages * t.micro_batches * (s.record.splits ? 3 : 2)));
    // Gradients of a stage add up in the order of the micro-batches.
    for (const auto& all : t.actions) {
      std::vector<int> last(static_cast<size_t>(4 * t.stages), -1);
      for (const Action& a : all) {
        int& before = last[static_cast<size_t>(static_cast<int>(a.pass) * t.stages + a.stage)];
        EXPECT_EQ(a.micro, before + 1);
        before = a.micro;
      }
    }
  });
}

// What the papers say, for passes that take equally long and messages that take no time.
TEST(Schedules, HaveTheBubblesOfTheLiterature) {
  int looked_at = 0;
  for_all([&](const Sizes& s, const Table& t) {
    const double p = s.ranks, v = s.chunks, m = s.micro_batches;
    const std::string_view name = s.record.name;
    const Simulation run = simulate(t, {StageCost{}});
    EXPECT_GE(run.bubble, -1e-12);
    double want = -1;
    if (name == "gpipe" || name == "1f1b") want = (p - 1) / (m + p - 1);
    if (name == "interleaved" && s.micro_batches % s.ranks == 0) want = (p - 1) / (v * m + p - 1);
    if (name == "breadth-first" && m >= p) want = (p - 1) / (v * m + p - 1);
    if (name == "zb-h1" && m >= p) want = (p - 1) / (3 * m + p - 1);
    if (name == "zb-v" && m >= 2 * p) want = (p - 1) / (6 * m + p - 1);
    if (want < 0) return;
    EXPECT_NEAR(run.bubble, want, 1e-9);
    ++looked_at;
  });
  EXPECT_GT(looked_at, 2000);
}

TEST(Schedules, HaveThoseBubblesForOtherCostsToo) {
  for (const auto& [f, i, w] : {std::array{1.0, 1.5, 0.5}, std::array{1.0, 1.0, 1.0}, std::array{0.7, 0.9, 0.8}}) {
    for (int p = 2; p <= 8; ++p) {
      for (const int m : {8, 16, 32}) {
        const std::vector<StageCost> cost{{f, i, w}};
        const double work = m * (f + i + w);
        EXPECT_NEAR(simulate(make_table("1f1b", p, m), cost).seconds, work + (p - 1) * (f + i + w), 1e-9);
        EXPECT_NEAR(simulate(make_table("gpipe", p, m), cost).seconds, work + (p - 1) * (f + i + w), 1e-9);
        const double zero = simulate(make_table("zb-h1", p, m), cost).seconds;
        EXPECT_LE(zero, work + (p - 1) * (f + i + w));
        EXPECT_GE(zero, work + (p - 1) * (f + i - w) - 1e-9);
      }
    }
  }
}

TEST(Schedules, KeepWhatTheySay) {
  for_all([](const Sizes& s, const Table& t) {
    const std::vector<int> live = prove(t).live;
    for (int r = 0; r < s.ranks; ++r) {
      const int got = live[static_cast<size_t>(r)], all = s.chunks * s.micro_batches;
      const std::string_view name = s.record.name;
      int want = all;  // gpipe, breadth-first
      if (name == "1f1b") want = std::min(s.ranks - r, all);
      if (name == "interleaved") want = std::min(all, 2 * (s.ranks - 1 - r) + (s.chunks - 1) * s.ranks + 1);
      if (name == "zb-h1") want = std::min(s.ranks, all);
      if (name == "zb-v") want = std::min(2 * s.ranks, all);
      if (name == "interleaved" && (s.micro_batches % s.ranks != 0 || s.chunks == 1)) continue;
      EXPECT_LE(got, want);
      if (name != "zb-v") {
        EXPECT_EQ(got, want);
      }
    }
  });
}

TEST(Schedules, WithoutRoomForMessagesGoNoSlower) {
  for (const int p : {2, 4, 8}) {
    const Table t = make_table("1f1b", p, 16);
    EXPECT_EQ(simulate(t, {StageCost{}}, 0, 1).seconds, simulate(t, {StageCost{}}).seconds);
  }
}

TEST(Schedules, MessagesTakeTime) {
  const Table t = make_table("gpipe", 4, 1);
  // One micro-batch through 4 stages and back: 12 passes, 6 messages.
  EXPECT_NEAR(simulate(t, {StageCost{}}, 0.5).seconds, 15, 1e-12);
  std::vector<StageCost> costs(4);
  costs[2] = {.forward = 4, .input = 2, .weight = 3};
  EXPECT_NEAR(simulate(t, costs).seconds, 9 + 9, 1e-12);
}

TEST(Schedules, TextShowsEachRank) {
  EXPECT_EQ(to_text(make_table("1f1b", 2, 3)), "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n");
  EXPECT_EQ(to_text(make_table("zb-h1", 2, 2)), "F0 F1 I0 W0 I1 W1\nF0 I0 F1 I1 W0 W1\n");
  EXPECT_EQ(to_text(make_table("breadth-first", 2, 1, 2)), "F0.0 F0.2 B0.2 B0.0\nF0.1 F0.3 B0.3 B0.1\n");
  EXPECT_EQ(make_table("zb-v", 3, 1).rank_of, (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(make_table("interleaved", 2, 1, 2).stages_of(1), (std::vector<int>{1, 3}));
}

TEST(Schedules, OfForwardPassesAlone) {
  const Table t = forward_table(make_table("zb-v", 3, 4), 5);
  EXPECT_FALSE(t.trains);
  EXPECT_NO_THROW(prove(t));
  Table bad = t;
  bad.actions[1].push_back({Pass::backward, 1, 0});
  EXPECT_THROW(prove(bad), ValueError);
}

TEST(Schedules, SizesAreRefusedByName) {
  EXPECT_THROW(make_table("2f2b", 2, 2), ValueError);
  EXPECT_THROW(make_table("1f1b", 2, 2, 2), ValueError);
  EXPECT_THROW(make_table("zb-v", 2, 2, 3), ValueError);
  EXPECT_THROW(make_table("gpipe", 0, 2), ValueError);
  EXPECT_THROW(make_table("gpipe", 2, 0), ValueError);
  EXPECT_THROW(make_table("interleaved", 2, 1 << 20, 4), ValueError);
  try {
    schedule_record("2f2b");
    FAIL();
  } catch (const ValueError& e) {
    for (const ScheduleRecord& r : schedule_records())
      EXPECT_NE(std::string(e.what()).find(r.name), std::string::npos) << e.what();
  }
  EXPECT_THROW(simulate(make_table("gpipe", 2, 2), {{}, {}, {}}), ValueError);
  EXPECT_THROW(simulate(make_table("gpipe", 2, 2), {{.forward = -1}}), ValueError);
  EXPECT_THROW(prove(make_table("gpipe", 2, 2), -1), ValueError);
}

// ---- mutated tables ----

void expect_refused(const Table& t, const std::string& piece) {
  try {
    prove(t);
    ADD_FAILURE() << "was not refused: " << piece << "\n" << to_text(t);
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << "no '" << piece << "' in: " << e.what();
  }
}

TEST(MutatedTables, AreRefusedWithTheActionNamed) {
  for_all([](const Sizes& s, const Table& good) {
    // One mutation of each kind at a place that the sizes choose.
    std::mt19937 random(static_cast<uint32_t>(s.ranks * 1000 + s.chunks * 100 + s.micro_batches));
    const auto rank = random() % static_cast<uint32_t>(s.ranks);
    const auto at = random() % static_cast<uint32_t>(good.actions[rank].size());
    const Action a = good.actions[rank][at];
    Table t = good;
    t.actions[rank].erase(t.actions[rank].begin() + at);
    expect_refused(t, to_text(a) + " is missing");
    t = good;
    t.actions[rank].push_back(a);
    expect_refused(t, to_text(a) + " stands twice");
    t = good;
    t.actions[rank][at].micro = s.micro_batches;
    expect_refused(t, to_text(t.actions[rank][at]) + ", and there are");
    t = good;
    t.actions[rank][at].stage = -1;
    expect_refused(t, to_text(t.actions[rank][at]));
    if (s.ranks > 1) {
      t = good;
      t.actions[rank].erase(t.actions[rank].begin() + at);
      t.actions[(rank + 1) % t.actions.size()].push_back(a);
      expect_refused(t, to_text(a) + ", which is on rank");
    }
    // A gradient before its forward pass.
    t = good;
    std::ranges::reverse(t.actions[rank]);
    expect_refused(t, "stands before");
    if (s.record.splits) {
      t = good;
      t.actions[rank].push_back({Pass::backward, a.stage, a.micro});
      expect_refused(t, " stands beside ");
    }
  });
}

TEST(MutatedTables, MessagesInAnotherOrderAreNamed) {
  Table t = make_table("gpipe", 2, 3);
  std::swap(t.actions[1][0], t.actions[1][1]);
  expect_refused(t, "F of micro-batch 1 at stage 1 stands where stage 0 has sent micro-batch 0");
  t = make_table("gpipe", 2, 3);
  std::swap(t.actions[0][3], t.actions[0][4]);
  expect_refused(t, "B of micro-batch 1 at stage 0 stands where stage 1 has sent micro-batch 0");
}

TEST(MutatedTables, RanksThatWaitForEachOtherAreNamed) {
  // Rank 0 wants a gradient that rank 1 makes behind an activation that rank 0 has not sent.
  Table t = make_table("1f1b", 2, 2);
  t.actions[0] = {{Pass::forward, 0, 0}, {Pass::backward, 0, 0}, {Pass::forward, 0, 1}, {Pass::backward, 0, 1}};
  t.actions[1] = {{Pass::forward, 1, 0}, {Pass::forward, 1, 1}, {Pass::backward, 1, 0}, {Pass::backward, 1, 1}};
  expect_refused(t,
                 "rank 0 stands before B of micro-batch 0 at stage 0, and waits for stage 1; rank 1 stands before F "
                 "of micro-batch 1 at stage 1, and waits for stage 0");
  // Nothing is wrong with it but that messages have too little room.
  t = make_table("breadth-first", 2, 8, 2);
  const int least = prove(t).buffers;
  ASSERT_GT(least, 1);
  try {
    prove(t, 1);
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("and 1 messages to stage"), std::string::npos) << e.what();
  }
}

TEST(MutatedTables, SizesThatDoNotFitAreRefused) {
  Table t = make_table("1f1b", 2, 2);
  t.rank_of = {0, 0};
  expect_refused(t, "rank 1 has no stage");
  t.rank_of = {0, 2};
  expect_refused(t, "stage 1 is on rank 2 of 2");
  t.rank_of = {0};
  expect_refused(t, "rank_of has 1 entries");
  t = make_table("1f1b", 2, 2);
  t.actions.pop_back();
  expect_refused(t, "actions of 1 ranks");
  t = make_table("1f1b", 2, 2);
  t.stages = 1;
  expect_refused(t, "at least a stage for each rank");
}

}  // namespace
}  // namespace strata::distributed::pipeline
