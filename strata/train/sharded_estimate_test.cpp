// What is said of a rank's memory where parts of the model are shared, beside what a run takes.

#include <cstdio>

#include "strata/train/estimate.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

class ShardedEstimate : public RankRunsTest {};

// Autocast's copies lie in parts as what they are of does, and come in its place: of 25 million weights, whose
// gradients take several buckets.
TEST_F(ShardedEstimate, KnowsThePartsOfAutocastsCopies) {
  c_.model.family = "llama";
  c_.model.layers = 24;
  c_.model.dim = 256;
  c_.model.ffn_dim = 1024;
  c_.model.context = 8;
  c_.model.tied_embeddings = false;
  c_.dtype = "bf16";
  c_.steps = 3;
  c_.eval_every = 0;
  c_.parallel.dp = 4;
  const auto name_of = [](int zero) { return "zero" + std::to_string(zero); };
  distributed::on_processes(4, [&](int) {
    for (const int zero : {2, 3}) run(name_of(zero), [&](TrainConfig& c) { c.parallel.zero = zero; });
  });
  if (is_rank()) return;
  for (const int zero : {2, 3}) {
    c_.parallel.zero = zero;
    const MemoryEstimate e = estimate_memory(c_);
    EXPECT_EQ(e.ranks, 4);
    const double peak = read_metrics(folder_ + name_of(zero) + "/metrics.jsonl").back().peak_memory;
    std::printf("zero %d: said %lld bytes, %.0f at most\n", zero, static_cast<long long>(e.peak), peak);
    EXPECT_NEAR(static_cast<double>(e.peak) / peak, 1, 0.05);
  }
}

}  // namespace
}  // namespace strata
