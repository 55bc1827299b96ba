// What ranks of a pipeline take, beside what estimates say of them.

#include <cmath>

#include "strata/memory/allocator.h"
#include "strata/train/estimate.h"
#include "strata/train/memory_plan.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata::plan {
namespace {

class StageMemory : public RankRunsTest {
 protected:
  StageMemory() {
    c_.model.family = "llama";
    c_.model.vocab = 256;
    c_.model.layers = 8;
    c_.model.dim = 128;
    c_.model.heads = c_.model.kv_heads = 4;
    c_.model.context = 64;
    c_.batch = 16;
    c_.steps = 3;
    c_.eval_every = 0;
  }
};

// Of the rank that takes most, by the allocator's count of the last step.
TEST_F(StageMemory, IsWhatTheEstimateSays) {
  const std::map<std::string, Change> ways{
      {"1f1b", [](TrainConfig&) {}},
      {"tp", [](TrainConfig& c) { c.parallel.tp = c.parallel.pp = 2; }},
      {"gpipe", [](TrainConfig& c) { c.parallel.schedule = "gpipe"; }},
      {"zb_h1", [](TrainConfig& c) { c.parallel.schedule = "zb-h1"; }},
      {"interleaved", [](TrainConfig& c) { c.parallel.schedule = "interleaved", c.parallel.stages = 2; }},
  };
  distributed::on_processes(4, [&](int) {
    for (const auto& [name, change] : ways) {
      TrainConfig c = c_;
      c.parallel.pp = 4;
      change(c);
      const auto want = static_cast<double>(estimate_memory(c).peak);
      const int64_t before = memory::stats(Device::cpu()).live_total;
      run(name, [&](TrainConfig& run) { run.parallel = c.parallel; });
      int64_t peak = memory::stats(Device::cpu()).peak_total - before;
      distributed::group("world").run("peak", [&](distributed::Communicator& all) {
        all.all_reduce(&peak, 1, DType::i64, distributed::Reduction::max);
      });
      if (std::abs(static_cast<double>(peak) / want - 1) > 0.25)
        throw std::runtime_error(cat(name, ": a rank takes ", peak, " bytes, ", want, " are said"));
    }
  });
}

TEST_F(StageMemory, WhatDoesNotFitWholeMayFitInStages) {
  const int64_t whole = estimate_memory(c_).peak;
  const memory::Bound bound{"a bound", whole * 3 / 4 + plan_memory(c_, {"none", whole * 9, 0}).program, 0};
  EXPECT_FALSE(plan_memory(c_, bound).fits);
  c_.parallel.pp = 4;
  EXPECT_TRUE(plan_memory(c_, bound).fits);
  c_.parallel.stages = 9;
  EXPECT_NE(message<ValueError>([&] { estimate_memory(c_); }).find("parallel.stages"), std::string::npos);
}

}  // namespace
}  // namespace strata::plan
