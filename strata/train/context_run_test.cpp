// Runs whose ranks share the positions of each row: losses are one process's, and any layout goes on from them.

#include <map>

#include "strata/train/estimate.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

using Change = RankRunsTest::Change;

class ContextRuns : public RankRunsTest {};

TEST_F(ContextRuns, OfTwoRanks) {
  const std::map<std::string, Change> ways{
      {"ring", [](TrainConfig&) {}},
      {"ulysses", [](TrainConfig& c) { c.parallel.cp_kind = "ulysses", c.tile = 24; }},
      {"zero1", [](TrainConfig& c) { c.parallel.zero = 1; }},
      {"zero2", [](TrainConfig& c) { c.parallel.zero = 2; }},
      {"zero3", [](TrainConfig& c) { c.parallel.zero = 3; }},
  };
  const auto of_two = [](const Change& more) {
    return [more](TrainConfig& c) {
      c.parallel.cp = 2;
      more(c);
    };
  };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("goes_on", [](TrainConfig& c) { c.steps = 3; });
  }
  distributed::on_processes(2, [&](int) {
    TrainConfig c = c_;
    c.parallel.cp = 4;
    refuses(c, "parallel.cp is 4, and the job has 2 ranks");
    c.parallel.cp = 2;
    c.model.context = 18;
    refuses(c, "18 positions cannot be shared out among 2 ranks: a multiple of 4");
    c.model.context = 32;
    c.data.format = "chat";
    refuses(c, "data.format = chat is for one rank");
    c.data.format = "text";
    c.parallel.exact = 2;
    EXPECT_NE(message<ValueError>([&] { validate(c); }).find("parallel.exact = 2 is not for parallel.cp = 2"),
              std::string::npos);
    for (const auto& [name, change] : ways) run(name, of_two(change));
    run("goes_on", of_two([](TrainConfig& o) { o.steps = 6, o.parallel.zero = 1; }), true);
    for (const char* name : {"drops", "drops_again"}) run(name, of_two([](TrainConfig& o) { o.model.dropout = 0.1; }));
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same("one", name);
  run(
      "goes_on", [](TrainConfig&) {}, true);
  const auto want = read_metrics(folder_ + "one/metrics.jsonl"), got = read_metrics(folder_ + "goes_on/metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5) << "step " << i + 1;
  EXPECT_EQ(weights("drops"), weights("drops_again"));
  EXPECT_NE(weights("drops"), weights("ring"));
}

// Dropout's numbers are those of elements of whole sequences, whoever has them: losses are one process's. Between
// attentions and of their weights, through balanced chunks and neighbours, recomputed blocks, stages and a stop.
TEST_F(ContextRuns, DropWhatOneProcessDrops) {
  c_.model.dropout = 0.2;
  c_.steps = 10;
  c_.eval_every = 5;
  const auto shared = [](int64_t cp, const Change& more = {}) -> Change {
    return [=](TrainConfig& c) {
      c.parallel.cp = cp;
      if (more) more(c);
    };
  };
  const Change ulysses = [](TrainConfig& c) { c.parallel.cp_kind = "ulysses"; };
  const std::map<std::string, Change> ways{
      {"ring4", shared(4)},
      {"ulysses4", shared(4, ulysses)},
      {"ring_dp", shared(2)},
      {"ulysses_zero3", shared(2, [=](TrainConfig& c) { ulysses(c), c.parallel.zero = 3; })},
      {"again", shared(2, [](TrainConfig& c) { c.parallel.recompute = true; })},
      {"stages", shared(2, [](TrainConfig& c) { c.parallel.pp = 2, c.parallel.schedule = "zb-h1"; })},
      {"stages_again", shared(2, [](TrainConfig& c) { c.parallel.pp = 2, c.parallel.recompute = true; })},
      {"accumulated", shared(2, [](TrainConfig& c) { c.batch = 2, c.accumulate = 2; })},
      {"tile", shared(4, [](TrainConfig& c) { c.tile = 24; })},
      {"tile_zero3", shared(2, [](TrainConfig& c) { c.tile = 24, c.parallel.zero = 3, c.parallel.recompute = true; })},
      {"cut", shared(2, [](TrainConfig& c) { c.parallel.tp = 2; })},
      {"cut_again", shared(2, [](TrainConfig& c) { c.parallel.tp = 2, c.parallel.recompute = true; })},
      {"cut_ulysses", shared(2, [=](TrainConfig& c) { ulysses(c), c.parallel.tp = 2, c.parallel.sequence = false; })},
      {"cut_zero3", shared(2, [](TrainConfig& c) { c.parallel.tp = 2, c.parallel.zero = 3; })},
  };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("one_accumulated", [](TrainConfig& c) { c.batch = 2, c.accumulate = 2; });
    run("whole", [](TrainConfig& c) { c.model.dropout = 0; });
    run("goes_on", [](TrainConfig& c) { c.steps = 4; });
  }
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
    run("goes_on", shared(4, [](TrainConfig& c) { c.steps = 7; }), true);
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same(name == "accumulated" ? "one_accumulated" : "one", name);
  run(
      "goes_on", [](TrainConfig&) {}, true);
  const auto want = read_metrics(folder_ + "one/metrics.jsonl"), got = read_metrics(folder_ + "goes_on/metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5) << "step " << i + 1;
  // Which is no small thing.
  const auto whole = read_metrics(folder_ + "whole/metrics.jsonl");
  for (size_t i = 0; i < want.size(); ++i) EXPECT_GT(std::abs(whole[i].loss - want[i].loss), 1e-3) << "step " << i + 1;
}

// The same where parallel.dp has rows beside, and heads are shared by parallel.tp and by queries.
TEST_F(ContextRuns, DropWhatOneProcessDropsOnEightRanks) {
  c_.model.family = "llama";
  c_.model.kv_heads = 2;
  c_.model.dropout = 0.2;
  c_.steps = 10;
  const Change cut = [](TrainConfig& c) { c.parallel.dp = c.parallel.cp = c.parallel.tp = 2; };
  const std::map<std::string, Change> ways{
      {"ring", cut},
      {"zero3",
       [=](TrainConfig& c) {
         cut(c);
         c.parallel.zero = 3;
         c.parallel.recompute = true;
       }},
      {"stages", [](TrainConfig& c) { c.parallel.pp = c.parallel.cp = c.parallel.tp = 2; }},
  };
  if (!is_rank()) run("one", [](TrainConfig&) {});
  distributed::on_processes(8, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same("one", name);
}

TEST_F(ContextRuns, OfTwoTimesTwoRanks) {
  c_.model.family = "llama";
  c_.model.kv_heads = 2;
  c_.accumulate = 2;
  const auto both = [](TrainConfig& c) { c.parallel.dp = 2, c.parallel.cp = 2; };
  const std::map<std::string, Change> ways{
      {"tp", [](TrainConfig& c) { c.parallel.cp = c.parallel.tp = 2; }},
      {"tp_ulysses",
       [](TrainConfig& c) {
         c.parallel.cp = c.parallel.tp = 2;
         c.parallel.cp_kind = "ulysses";
         c.parallel.sequence = false;
       }},
      {"tp_zero",
       [](TrainConfig& c) {
         c.parallel.cp = c.parallel.tp = 2;
         c.parallel.zero = 2;
       }},
      {"pp", [](TrainConfig& c) { c.parallel.cp = c.parallel.pp = 2; }},
      {"pp_zb",
       [](TrainConfig& c) {
         c.parallel.cp = c.parallel.pp = 2;
         c.parallel.schedule = "zb-h1";
         c.parallel.micro_batches = 4;
       }},
  };
  if (!is_rank()) run("one", [](TrainConfig&) {});
  distributed::on_processes(4, [&](int) {
    run("both", both);
    for (const auto& [name, change] : ways) run(name, change);
    run("zero3", [&](TrainConfig& o) {
      both(o);
      o.parallel.zero = 3;
      o.parallel.cp_kind = "ulysses";
    });
  });
  if (is_rank()) return;
  expect_same("one", "both");
  expect_same("one", "zero3");
  for (const auto& [name, change] : ways) expect_same("one", name);
}

TEST_F(ContextRuns, EstimateKnowsARanksPart) {
  c_.model.dim = 64;
  c_.model.context = 512;
  c_.batch = 2;
  c_.steps = 3;
  c_.eval_every = 0;
  c_.parallel.cp = 2;
  const auto kind = [](const std::string& name) { return [name](TrainConfig& c) { c.parallel.cp_kind = name; }; };
  distributed::on_processes(2, [&](int) {
    for (const char* name : {"ring", "ulysses"}) run(name, kind(name));
  });
  if (is_rank()) return;
  for (const char* name : {"ring", "ulysses"}) {
    kind(name)(c_);
    const MemoryEstimate e = estimate_memory(c_);
    EXPECT_EQ(e.ranks, 2);
    EXPECT_GT(e.sends_activations, 0);
    const double peak = read_metrics(folder_ + name + "/metrics.jsonl").back().peak_memory;
    EXPECT_LE(static_cast<double>(e.peak) / peak, 1.15) << e.peak << " and " << peak;
    EXPECT_GE(static_cast<double>(e.peak) / peak, 0.87) << e.peak << " and " << peak;
    std::printf("%s: said %lld bytes, %.0f at most\n", name, static_cast<long long>(e.peak), peak);
  }
}

}  // namespace
}  // namespace strata
