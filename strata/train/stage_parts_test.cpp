// Stages whose weights and positions lie in parts: parallel.tp with parallel.pp, beside one process.

#include <map>

#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

class StageParts : public RankRunsTest {
 protected:
  StageParts() {
    c_.model.family = "llama";
    c_.model.layers = 4;
    c_.model.kv_heads = 2;
    c_.steps = 4;
    c_.eval_every = 2;
  }
};

RankRunsTest::Change at(int64_t dp, int64_t tp, int64_t pp, const RankRunsTest::Change& more = {}) {
  return [=](TrainConfig& c) {
    c.parallel.dp = dp, c.parallel.tp = tp, c.parallel.pp = pp;
    if (more) more(c);
  };
}
RankRunsTest::Change schedule(const std::string& name, int64_t stages = 0) {
  return [=](TrainConfig& c) { c.parallel.schedule = name, c.parallel.stages = stages; };
}

TEST_F(StageParts, OfFourRanksAreThoseOfOne) {
  const Change whole_positions = [](TrainConfig& c) { c.parallel.sequence = false; };
  const Change again = [](TrainConfig& c) { c.parallel.recompute = true; };
  const Change many = [](TrainConfig& c) { c.accumulate = 2, c.batch /= 2; };
  const std::map<std::string, Change> ways{
      {"1f1b", at(1, 2, 2)},
      {"gpipe", at(1, 2, 2, schedule("gpipe"))},
      {"interleaved", at(1, 2, 2, schedule("interleaved", 2))},
      {"breadth_first", at(1, 2, 2, schedule("breadth-first", 2))},
      {"zb_h1", at(1, 2, 2, schedule("zb-h1"))},
      {"zb_v", at(1, 2, 2, schedule("zb-v"))},
      {"whole_positions", at(1, 2, 2, whole_positions)},
      {"recomputed", at(1, 2, 2, again)},
  };
  const Change untied = [](TrainConfig& c) { c.model.tied_embeddings = false; };
  const Change gpt = [](TrainConfig& c) { c.model.family = "gpt", c.model.kv_heads = 0; };
  const Change dropped = [](TrainConfig& c) { c.model.dropout = 0.2; };
  const Change uneven = [](TrainConfig& c) { c.model.context = 15; };
  const Change low = [](TrainConfig& c) { c.dtype = "bf16"; };
  const std::map<std::string, std::pair<Change, double>> models{
      {"gpt", {gpt, 1e-5}}, {"dropped", {dropped, 1e-5}},  {"uneven", {uneven, 1e-5}},
      {"low", {low, 1e-3}}, {"accumulated", {many, 1e-5}}, {"untied", {untied, 1e-5}},
  };
  const Change experts = [](TrainConfig& c) {
    c.model.experts = 4, c.model.experts_per_token = 2, c.model.ffn_dim = 32;
    c.model.balance_loss = 0;  // loads are a micro-batch's own
    c.model.z_loss = 0.01;
  };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("one_experts", experts);
    for (const auto& [name, m] : models) run("one_" + name, m.first);
  }
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
    for (const auto& [name, m] : models) run(name, at(1, 2, 2, m.first));
    run("experts", at(1, 2, 2, [&](TrainConfig& c) { experts(c), c.parallel.ep = 2; }));
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same("one", name);
  for (const auto& [name, m] : models) expect_same("one_" + name, name, m.second);
  expect_same("one_experts", "experts");
}

// Each axis at once; and any layout goes on from any other.
TEST_F(StageParts, OfEightRanksAreThoseOfOneAndGoOn) {
  const auto zero = [](int64_t n) { return [=](TrainConfig& c) { c.parallel.zero = n; }; };
  const Change shared = [](TrainConfig& c) { c.parallel.cp = 2; };
  const Change half = [](TrainConfig& c) { c.steps = 2, c.save_every = 2; };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("from_one", half);
  }
  distributed::on_processes(8, [&](int) {
    run("dp_tp_pp", at(2, 2, 2));
    run("dp_tp_pp_zero1", at(2, 2, 2, zero(1)));
    run("tp_cp_pp", at(1, 2, 2, shared));
    run("from_one", at(2, 2, 2, zero(1)), true);
    run("to_one", [&](TrainConfig& c) { at(2, 2, 2)(c), half(c); });
  });
  if (is_rank()) return;
  run(
      "to_one", [](TrainConfig&) {}, true);
  for (const char* name : {"dp_tp_pp", "dp_tp_pp_zero1", "tp_cp_pp", "from_one", "to_one"}) expect_same("one", name);
}

TEST_F(StageParts, WhatIsNotForThemIsSaidByName) {
  c_.parallel.tp = 2, c_.parallel.pp = 2, c_.parallel.exact = 4;
  distributed::on_processes(4, [&](int) {
    const std::string text = message<Error>([&] { const Ranks ranks(c_); });
    for (const char* key : {"parallel.exact", "parallel.tp", "parallel.pp"})
      if (text.find(key) == std::string::npos) throw std::runtime_error(cat("no ", key, " in: ", text));
  });
}

}  // namespace
}  // namespace strata
