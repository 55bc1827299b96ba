// strata plan, strata info --links of a job, and runs with parallel.auto, as users start them.

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/ranks_test_util.h"
#include "strata/train/config.h"
#include "strata/train/plan/plan.h"

namespace strata::cli {
namespace {

class PlanRuns : public RanksTest {
 protected:
  // Links that make whole replicas dear, and memory enough.
  plan::Machine slow_links() const {
    return {
        .name = "made up",
        .limits = {.gb_s = 10, .gflops = 50, .matmul_f32 = 100, .matmul_bf16 = 100},
        .efficiency = 0.5,
        .call_us = 5,
        .memory = int64_t{1} << 30,
        .links = {.transport = "gloo", .ranks_per_host = 4, .inside = {0.5, 50}, .between = {0.5, 50}, .overlap = 0.5}};
  }
  std::string links(const plan::Machine& m) const {
    const std::string path = dir_ / "links.json";
    io::write_file(path, m.to_json());
    return path;
  }
};

TEST_F(PlanRuns, APlanIsATableOrJson) {
  const std::string plan =
      "plan " + (dir_ / "tiny.toml") + " --ranks 4 --set model.vocab=256 --links " + links(slow_links());
  const Result table = strata(plan + " --rows 4 --order");
  ASSERT_EQ(table.status, 0) << table.output;
  for (const char* what : {"ms a step", "tokens/s", "bubble",
                           "The first: --set parallel.dp=", "left out:", "order of ranks for the first: 0 1 2 3"})
    EXPECT_NE(table.output.find(what), std::string::npos) << what << '\n' << table.output;
  const Result json = strata(plan + " --json --order");
  ASSERT_EQ(json.status, 0) << json.output;
  const auto j = nlohmann::json::parse(json.output);
  EXPECT_EQ(j["ranks"], 4);
  EXPECT_GT(j["layouts"].size(), 10U);
  EXPECT_EQ(j["order"]["ranks"], (std::vector<int>{0, 1, 2, 3}));
  const Result none = strata(plan + " --memory 1KiB");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.output.find("does not fit into a rank's memory"), std::string::npos) << none.output;
  const Result unknown = strata("plan --ranks 4");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.output.find("strata info --links"), std::string::npos) << unknown.output;
  const Result both = strata(plan + " --card h200");
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.output.find("links and a card"), std::string::npos) << both.output;
  const Result uneven = strata(plan + " --hosts 3");
  EXPECT_EQ(uneven.status, 2);
  EXPECT_NE(uneven.output.find("3 hosts do not divide the 4 ranks"), std::string::npos) << uneven.output;
}

// What a plan prints is run as it stands: the ranks lie in the order that avoids the slow pair, and learn what they do
// in any other.
TEST_F(PlanRuns, ThePrintedCommandTrainsInItsOrder) {
  plan::Machine m = slow_links();
  m.links.pairs.assign(16, {0.5, 50});
  m.links.pairs[1] = m.links.pairs[4] = {0.001, 50};  // ranks 0 and 1, neighbours as they come
  const std::string set =
      " --set model.vocab=256 train.steps=4 data.path=" + (dir_ / "text.txt") + " parallel.dp=2 parallel.tp=2";
  const Result planned = strata("plan " + (dir_ / "tiny.toml") + " --ranks 4 --links " + links(m) + " --order" + set);
  ASSERT_EQ(planned.status, 0) << planned.output;
  const size_t at = planned.output.find("to train so:\nstrata launch -n 4 --order ");
  ASSERT_NE(at, std::string::npos) << planned.output;
  std::string command = planned.output.substr(planned.output.find('\n', at) + 1);
  command.resize(command.find('\n'));
  std::string order = command.substr(command.find("--order ") + 8);
  order.resize(order.find(' '));
  std::vector<int> place(4);
  for (int rank = 0; rank < 4; ++rank) place[static_cast<size_t>(order[static_cast<size_t>(2 * rank)] - '0')] = rank;
  EXPECT_NE(place[0] / 2, place[1] / 2) << order;  // not of one group of tp
  const size_t inner = command.find("-- strata train");
  ASSERT_NE(inner, std::string::npos) << command;
  const std::string rest = command.substr(inner + std::string("-- strata").size()) + " --out " + (dir_ / "ordered");
  const Result ordered = strata(
      command.substr(std::string("strata ").size(), inner + 3 - std::string("strata ").size()) + program() + rest);
  ASSERT_EQ(ordered.status, 0) << ordered.output;
  const Result as_they_come = strata(on(4, "come") + set);
  ASSERT_EQ(as_they_come.status, 0) << as_they_come.output;
  const auto got = metrics("ordered"), want = metrics("come");
  ASSERT_EQ(got.size(), 4U);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].loss, want[i].loss) << i;
  EXPECT_EQ(weights("ordered"), weights("come"));
}

TEST_F(PlanRuns, AJobMeasuresItsLinks) {
  const std::string path = dir_ / "measured.json";
  const Result r = strata("launch -n 3 -- " + std::string(program()) + " info --links --device cpu --out " + path);
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("rank 2 to rank 1"), std::string::npos) << r.output;
  const plan::Machine m = plan::machine_from_json(io::read_file(path), path);
  ASSERT_EQ(m.links.ranks(), 3);
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) {
      EXPECT_GT(m.links.of(a, b).gb_s, 0) << a << b;
      EXPECT_GT(m.links.of(a, b).latency_us, 0) << a << b;
    }
  EXPECT_GT(m.links.scale, 0);
  EXPECT_GT(m.efficiency, 0);
  EXPECT_EQ(m.links.transport, "gloo");
}

TEST_F(PlanRuns, AFileOfOneRankPlansForOne) {
  const std::string path = dir_ / "alone.json";
  const Result r = strata("info --links --device cpu --out " + path);
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("other programs leave "), std::string::npos) << r.output;
  const std::string plan = "plan " + (dir_ / "tiny.toml") + " --set model.vocab=256 --links " + path;
  const Result one = strata(plan + " --ranks 1");
  EXPECT_EQ(one.status, 0) << one.output;
  EXPECT_NE(one.output.find("The first: --set parallel.dp=1"), std::string::npos) << one.output;
  const Result two = strata(plan + " --ranks 2");
  EXPECT_EQ(two.status, 1) << two.output;
  EXPECT_NE(two.output.find("the links between ranks are not known"), std::string::npos) << two.output;
}

// The same numbers as the layout that a plan from the same file ranks first, set by hand; and its line.
TEST_F(PlanRuns, ARunPlansItself) {
  const plan::Machine m = slow_links();
  const std::string path = links(m);
  const TrainConfig config = load_config(dir_ / "tiny.toml", {"model.vocab=256"});
  const plan::Plan p = plan::plan_layouts(config, 4, m);
  ASSERT_FALSE(p.layouts.empty());
  const std::string size = "--steps 6 --set model.vocab=256 ";
  const Result automatic = strata(on(4, "auto") + size + "--set parallel.auto=true parallel.links=" + path);
  ASSERT_EQ(automatic.status, 0) << automatic.output;
  EXPECT_NE(automatic.output.find("parallel.auto: " + p.layouts[0].layout.to_text()), std::string::npos)
      << automatic.output;
  std::string by_hand = "--set";
  for (const std::string& s : p.layouts[0].settings) by_hand += " " + s;
  const Result hand = strata(on(4, "hand") + size + by_hand);
  ASSERT_EQ(hand.status, 0) << hand.output;
  const auto got = metrics("auto"), want = metrics("hand");
  ASSERT_EQ(got.size(), 6U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].loss, want[i].loss) << i;
  EXPECT_EQ(weights("auto"), weights("hand"));
  // What the run did stands in its checkpoint: it goes on without planning again.
  const Result on_again =
      strata("launch -n 4 -- " + std::string(program()) + " train --resume --out " + (dir_ / "auto") + " --steps 7");
  ASSERT_EQ(on_again.status, 0) << on_again.output;
  EXPECT_EQ(on_again.output.find("parallel.auto:"), std::string::npos) << on_again.output;
}

TEST_F(PlanRuns, WhatCannotBePlannedIsNamedByAll) {
  plan::Machine m = slow_links();
  m.memory = 1000;
  const Result small = strata(on(2, "small") + "--set model.vocab=256 parallel.auto=true parallel.links=" + links(m));
  EXPECT_NE(small.status, 0);
  EXPECT_NE(small.output.find("parallel.auto finds no layout of 2 ranks"), std::string::npos) << small.output;
  io::write_file(dir_ / "links.json", "{\"name\": ");
  const Result broken = strata(on(2, "broken") + "--set parallel.auto=true parallel.links=" + (dir_ / "links.json"));
  EXPECT_NE(broken.status, 0);
  EXPECT_NE(broken.output.find("is no JSON at byte 10"), std::string::npos) << broken.output;
}

// Blocks that run again, beside each way to share: what one process learns without.
TEST_F(PlanRuns, BlocksRunAgainInAnyLayout) {
  const std::string size = "--steps 8 --set model.heads=4 ";
  ASSERT_EQ(strata(train("one") + size).status, 0);
  const auto want = metrics("one");
  ASSERT_EQ(want.size(), 8U);
  for (const std::string layout : {"parallel.dp=1", "parallel.zero=3", "parallel.tp=2", "parallel.cp=2"}) {
    SCOPED_TRACE(layout);
    const bool alone = layout == "parallel.dp=1";
    const std::string out = "again_" + layout.substr(9);
    const Result r = strata((alone ? train(out) : on(2, out)) + size + "--set parallel.recompute=true " + layout);
    ASSERT_EQ(r.status, 0) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-4) << i;
  }
  const Result both = strata(train("both") + size + "--set parallel.recompute=true memory.device=1GiB");
  EXPECT_NE(both.status, 0);
  EXPECT_NE(both.output.find("parallel.recompute is for runs without [memory]"), std::string::npos) << both.output;
}

}  // namespace
}  // namespace strata::cli
