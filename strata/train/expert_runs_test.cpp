// Runs whose experts are shared by other ranks than the model's other weights: losses are one process's, and any layout
// goes on from any other.

#include <map>

#include "strata/train/estimate.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

class ExpertRuns : public RankRunsTest {
 protected:
  ExpertRuns() {
    c_.model.family = "llama";
    c_.model.experts = 4;
    c_.model.experts_per_token = 2;
    c_.model.ffn_dim = 32;
    c_.model.shared_dim = 16;
    c_.model.balance_loss = 0.01;
    c_.model.z_loss = 0.001;
    c_.model.kv_heads = 2;
    c_.steps = 4;
    c_.eval_every = 2;
  }
};

RankRunsTest::Change at(int64_t dp, int64_t tp, int64_t ep, int64_t zero, const RankRunsTest::Change& more = {}) {
  return [=](TrainConfig& c) {
    c.parallel.dp = dp, c.parallel.tp = tp, c.parallel.ep = ep, c.parallel.zero = zero;
    if (more) more(c);
  };
}

TEST_F(ExpertRuns, OfFourRanksAreThoseOfOne) {
  const Change whole_positions = [](TrainConfig& c) { c.parallel.sequence = false; };
  const Change shared = [](TrainConfig& c) { c.parallel.cp = 2; };
  const Change full = [](TrainConfig& c) { c.model.expert_capacity = 1, c.model.expert_overflow = "reroute"; };
  const std::map<std::string, Change> ways{
      {"dp4_ep4_zero1", at(4, 1, 4, 1)},
      {"dp4_ep2_zero1", at(4, 1, 2, 1)},
      {"dp4_ep2_zero2", at(4, 1, 2, 2)},
      {"dp4_ep2_zero3", at(4, 1, 2, 3)},
      {"dp4_ep4_zero3", at(4, 1, 4, 3)},
      {"dp2_tp2_ep2", at(2, 2, 2, 0)},
      {"dp2_tp2_ep4", at(2, 2, 4, 0)},
      {"dp2_tp2_ep4_whole", at(2, 2, 4, 0, whole_positions)},
      {"dp2_tp2_ep2_zero1", at(2, 2, 2, 1)},
      {"dp2_tp2_ep4_zero2", at(2, 2, 4, 2)},
      {"dp2_tp2_ep2_zero3", at(2, 2, 2, 3)},
      {"dp2_cp2_ep2", at(2, 1, 2, 0, shared)},
      {"dp2_cp2_ep4_zero1", at(2, 1, 4, 1, shared)},
      {"cp2_tp2_ep2", at(1, 2, 2, 0, shared)},
      {"cp2_tp2_ep4", at(1, 2, 4, 0, shared)},
  };
  const std::map<std::string, Change> within_capacity{{"full_dp4_ep4_zero2", at(4, 1, 4, 2, full)},
                                                      {"full_dp2_tp2_ep4", at(2, 2, 4, 0, full)},
                                                      {"full_dp2_tp2_ep2_zero1", at(2, 2, 2, 1, full)}};
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("full", full);
  }
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
    for (const auto& [name, change] : within_capacity) run(name, change);
    TrainConfig c = c_;
    at(2, 2, 1, 0)(c);
    refuses(c, "parallel.tp is 2, and a model with experts wants those ranks to share them: parallel.ep is 1");
    at(2, 2, 3, 0)(c);
    refuses(c, "parallel.ep is 3");
    at(2, 1, 3, 0, shared)(c);
    refuses(c, "parallel.ep is 3, which does not divide the 4 ranks of parallel.dp and parallel.cp by neighbours");
    at(2, 2, 4, 0, full)(c);
    c.parallel.cp = 1;
    c.batch = 2;
    refuses(c,
            "parallel.tp is 2, which does not divide the 1 rows of a rank of parallel.dp, and model.expert_capacity");
    at(2, 1, 2, 0, shared)(c);
    refuses(c, "parallel.cp is 2, and model.expert_capacity counts whole sequences");
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same("one", name);
  for (const auto& [name, change] : within_capacity) expect_same("full", name);
}

// Every stage adds what its blocks' experts cost, gradients and loss, of each micro-batch: what one process does that
// accumulates the same micro-batches. Of those of several ranks along dp the loads are counted together.
TEST_F(ExpertRuns, OfStagesAreThoseOfOne) {
  c_.model.layers = 4;
  c_.model.balance_loss = 0.3;
  c_.model.z_loss = 0.02;
  c_.batch = 2;
  c_.accumulate = 4;
  const auto stages = [](int64_t pp, const char* schedule, const Change& more = {}) -> Change {
    return [=](TrainConfig& c) {
      c.parallel.pp = pp, c.parallel.dp = 4 / pp, c.parallel.schedule = schedule, c.parallel.micro_batches = 1;
      if (more) more(c);
    };
  };
  const Change shared = [](TrainConfig& c) { c.parallel.ep = 2; };
  const Change positions = [](TrainConfig& c) { c.parallel.dp = 1, c.parallel.cp = 2; };
  const std::map<std::string, Change> ways{
      {"pp4", stages(4, "1f1b")},
      {"pp4_zb", stages(4, "zb-h1")},
      {"pp2_dp2", stages(2, "1f1b")},
      {"pp2_dp2_zb-v", stages(2, "zb-v")},
      {"pp2_ep2", stages(2, "1f1b", shared)},
      {"pp2_ep2_zb", stages(2, "zb-h1", shared)},
      {"pp2_ep2_zero1", stages(2, "1f1b", [](TrainConfig& c) { c.parallel.ep = 2, c.parallel.zero = 1; })},
      {"pp2_ep2_again", stages(2, "zb-h1", [](TrainConfig& c) { c.parallel.ep = 2, c.parallel.recompute = true; })},
      {"pp2_cp2", stages(2, "1f1b", positions)},
  };
  const Change untested = [](TrainConfig& c) { c.eval_every = 0; };  // where batches of validation have other rows
  const Change pieces = stages(4, "1f1b", [&](TrainConfig& c) {
    untested(c);
    c.batch = 8, c.accumulate = 1, c.parallel.micro_batches = 4;  // the same of one larger batch
  });
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("one_untested", untested);
    run("without", [](TrainConfig& c) { c.model.balance_loss = c.model.z_loss = 0; });
  }
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
    run("pieces", pieces);
    TrainConfig c = c_;
    stages(2, "1f1b")(c);
    c.parallel.micro_batches = 0;
    c.parallel.exact = 2;
    refuses(c, "parallel.pp = 2 with parallel.exact is for model.balance_loss = 0");
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) expect_same("one", name);
  expect_same("one_untested", "pieces");
  // Which is another run than without them.
  const auto with = read_metrics(folder_ + "one/metrics.jsonl"),
             without = read_metrics(folder_ + "without/metrics.jsonl");
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_GT(with[i].loss, without[i].loss + 1) << i;  // 4 layers of 0.3 and more
    EXPECT_GT(std::abs(with[i].grad_norm - without[i].grad_norm), 1e-3) << i;
  }
}

// One run, through five layouts.
TEST_F(ExpertRuns, GoOnInOtherLayouts) {
  c_.model.balance_loss = 0;  // of a pipeline's micro-batches the loads are their own
  c_.steps = 10;
  c_.eval_every = 5;
  const auto until = [](int64_t steps, const Change& way) {
    return [=](TrainConfig& c) {
      way(c);
      c.steps = steps;
    };
  };
  const Change one = [](TrainConfig&) {};
  if (!is_rank()) {
    run("one", one);
    run("goes_on", until(2, one));
  }
  distributed::on_processes(4, [&](int) {
    run("goes_on", until(4, at(2, 2, 4, 1)), true);
    run("goes_on", until(6, at(2, 1, 2, 0, [](TrainConfig& c) { c.parallel.pp = 2; })), true);
    run("goes_on", until(8, at(4, 1, 2, 3)), true);
  });
  if (is_rank()) return;
  run("goes_on", until(10, at(1, 1, 1, 0)), true);
  const auto want = read_metrics(folder_ + "one/metrics.jsonl"), got = read_metrics(folder_ + "goes_on/metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5) << "step " << i + 1;
}

TEST_F(ExpertRuns, EstimateKnowsARanksPart) {
  c_.model.dim = 64;
  c_.model.ffn_dim = 256;
  c_.model.context = 64;
  c_.batch = 8;
  c_.steps = 3;
  c_.eval_every = 0;
  const std::map<std::string, Change> ways{{"dp4_ep4", at(4, 1, 4, 0)},
                                           {"dp4_ep2_zero1", at(4, 1, 2, 1)},
                                           {"dp4_ep2_zero3", at(4, 1, 2, 3)},
                                           {"dp2_tp2_ep4", at(2, 2, 4, 0)},
                                           {"dp2_tp2_ep2_zero2", at(2, 2, 2, 2)}};
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) run(name, change);
  });
  if (is_rank()) return;
  for (const auto& [name, change] : ways) {
    TrainConfig c = c_;
    change(c);
    const MemoryEstimate e = estimate_memory(c);
    EXPECT_GT(e.sends_tokens, 0) << name;
    const double peak = read_metrics(folder_ + name + "/metrics.jsonl").back().peak_memory;
    std::printf("%s: said %lld bytes, %.0f at most\n", name.c_str(), static_cast<long long>(e.peak), peak);
    EXPECT_LE(static_cast<double>(e.peak) / peak, 1.25) << name;
    EXPECT_GE(static_cast<double>(e.peak) / peak, 0.8) << name;
  }
}

}  // namespace
}  // namespace strata
