// Stages of a pipeline whose ranks along dp share gradients and parameters: ZeRO 2 and 3.

#include <array>
#include <string>

#include "strata/memory/allocator.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-v"};

// Parameters, gradients and state behind a step, by the allocator's count.
std::array<double, 3> g_bytes;
bool look_at_bytes() {
  const memory::Stats s = memory::stats(Device::cpu());
  size_t i = 0;
  for (const memory::Tag tag : {memory::Tag::parameter, memory::Tag::gradient, memory::Tag::optimizer})
    g_bytes[i++] = static_cast<double>(s.live[static_cast<size_t>(tag)]);
  return false;
}

class StagesInParts : public RankRunsTest {
 protected:
  StagesInParts() {
    c_.model.layers = 4;
    c_.model.dim = 16;
    c_.model.heads = 2;
    c_.model.context = 16;
    c_.batch = 8;
    c_.steps = 4;
    c_.eval_every = 2;
  }
  static Change stages(const char* schedule, int64_t zero, const Change& more = {}) {
    return [=](TrainConfig& c) {
      c.parallel.pp = 2, c.parallel.dp = 2;
      c.parallel.schedule = schedule;
      c.parallel.zero = zero;
      if (more) more(c);
    };
  }
};

// A tied table, whose two parts of the gradient are on two ranks, or, of zb-v, on one. Of ZeRO 2 the bits are those of
// whole replicas.
TEST_F(StagesInParts, EveryScheduleTrainsAsOneProcess) {
  if (!is_rank()) run("one", [](TrainConfig&) {});
  distributed::on_processes(4, [&](int) {
    for (const char* schedule : kSchedules)
      for (const int64_t zero : {0, 2, 3})
        run(cat(schedule, zero), stages(schedule, zero, [](TrainConfig& c) { c.parallel.check_replicas = 2; }));
  });
  if (is_rank()) return;
  for (const char* schedule : kSchedules) {
    for (const int64_t zero : {0, 2, 3}) expect_same("one", cat(schedule, zero));
    EXPECT_EQ(weights(cat(schedule, 2)), weights(cat(schedule, 0))) << schedule;
  }
}

// Untied, with batches that add up, clipped, dropout's numbers, blocks that run again. Whole gradients of ZeRO 3 have
// the bits of whole replicas, too.
TEST_F(StagesInParts, OtherModelsAndSettings) {
  const Change other = [](TrainConfig& c) {
    c.model.tied_embeddings = false;
    c.model.dropout = 0.1;
    c.accumulate = 2, c.batch = 4;
    c.optim.grad_clip = 0.3;
  };
  const auto also = [&](const Change& more) { return [=](TrainConfig& c) { other(c), more(c); }; };
  const Change whole = also([](TrainConfig& c) { c.parallel.every_pass = false; });
  const Change never = also([](TrainConfig& c) { c.parallel.reshard = "never"; });
  const Change near = also([](TrainConfig& c) { c.parallel.reshard = "2"; });
  const Change again = also([](TrainConfig& c) { c.parallel.recompute = true; });
  if (!is_rank()) run("one", other);
  distributed::on_processes(4, [&](int) {
    for (const char* schedule : {"1f1b", "zb-v"}) {
      run(cat(schedule, "_0"), stages(schedule, 0, other));
      run(cat(schedule, "_2"), stages(schedule, 2, other));
      run(cat(schedule, "_3"), stages(schedule, 3, other));
      run(cat(schedule, "_whole"), stages(schedule, 3, whole));
      run(cat(schedule, "_never"), stages(schedule, 3, never));
      run(cat(schedule, "_near"), stages(schedule, 3, near));
      run(cat(schedule, "_again"), stages(schedule, 3, again));
    }
  });
  if (is_rank()) return;
  for (const std::string schedule : {"1f1b", "zb-v"}) {
    for (const char* run : {"_0", "_2", "_3", "_whole", "_never", "_near", "_again"})
      expect_same("one", schedule + run);
    for (const char* run : {"_2", "_whole"}) EXPECT_EQ(weights(schedule + "_0"), weights(schedule + run)) << run;
    for (const char* run : {"_never", "_near", "_again"})
      EXPECT_EQ(weights(schedule + "_3"), weights(schedule + run)) << run;
  }
}

// A checkpoint is that of any run: the same layout goes on to the same bits, others to the same losses.
TEST_F(StagesInParts, GoOnFromWhatTheySavedInAnyLayout) {
  const Change less = [](TrainConfig& c) { c.steps = 2; };
  const Change rest = [](TrainConfig& c) { c.save_every = 2; };
  const auto layout = [](int64_t pp, int64_t zero) {
    return [=](TrainConfig& c) { c.parallel.pp = pp, c.parallel.dp = 4 / pp, c.parallel.zero = zero; };
  };
  if (!is_rank()) run("one", rest);
  distributed::on_processes(4, [&](int) {
    for (const int64_t zero : {2, 3}) {
      run(cat("straight", zero), stages("zb-h1", zero, rest));
      for (const std::string out : {"same", "pp", "dp", "zero"}) run(cat(out, zero), stages("zb-h1", zero, less));
      run(cat("same", zero), stages("zb-h1", zero, rest), true);
      run(cat("pp", zero), layout(4, zero), true);
      run(cat("dp", zero), layout(1, 3), true);
      run(cat("zero", zero), stages("1f1b", 5 - zero, rest), true);
    }
    run("from_dp", [&](TrainConfig& c) { layout(1, 3)(c), less(c); });
    run("from_dp", stages("interleaved", 3), true);
  });
  if (is_rank()) return;
  for (const int64_t zero : {2, 3}) {
    EXPECT_EQ(weights(cat("same", zero)), weights(cat("straight", zero)));
    for (const char* out : {"same", "pp", "dp", "zero"}) expect_same("one", cat(out, zero));
    // One process goes on with what four have saved.
    run(
        cat("pp", zero), [](TrainConfig& c) { c.steps = 5; }, true);
    EXPECT_EQ(read_metrics(folder_ + cat("pp", zero) + "/metrics.jsonl").size(), 5U);
  }
  expect_same("one", "from_dp");
}

// Beside ranks that share positions or experts, whose parts are shared once more, and in bf16 and f16, of which ZeRO 3
// gathers copies.
TEST_F(StagesInParts, BesideOtherAxes) {
  const Change experts = [](TrainConfig& c) {
    c.model.experts = 4, c.model.experts_per_token = 2, c.model.ffn_dim = 16;
    c.model.balance_loss = 0;  // of a pipeline's micro-batches the loads are their own
    c.model.z_loss = 0.01;
  };
  const Change spread = [=](TrainConfig& c) { experts(c), c.parallel.ep = 2; };
  const Change context = [](TrainConfig& c) { c.parallel.dp = 1, c.parallel.cp = 2; };
  const Change low = [](TrainConfig& c) { c.dtype = "bf16"; };
  const Change half = [](TrainConfig& c) { c.dtype = "f16"; };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("one_experts", experts);
    run("one_low", low);
    run("one_half", half);
  }
  distributed::on_processes(4, [&](int) {
    for (const int64_t zero : {2, 3}) {
      run(cat("cp", zero), stages("1f1b", zero, context));
      run(cat("experts", zero), stages("1f1b", zero, experts));
      run(cat("ep", zero), stages("zb-h1", zero, spread));
      run(cat("low", zero), stages("zb-v", zero, low));
      run(cat("half", zero), stages("1f1b", zero, half));
    }
  });
  if (is_rank()) return;
  for (const int64_t zero : {2, 3}) {
    expect_same("one", cat("cp", zero));
    expect_same("one_experts", cat("experts", zero));
    expect_same("one_experts", cat("ep", zero));
    expect_same("one_low", cat("low", zero), 1e-3);
    expect_same("one_half", cat("half", zero), 1e-3);
  }
}

// Weights that tensor parallelism has cut are shared once more.
TEST_F(StagesInParts, OfThreeAxes) {
  const Change cut = [](TrainConfig& c) { c.parallel.tp = 2; };
  if (!is_rank()) run("one", [](TrainConfig&) {});
  distributed::on_processes(8, [&](int) {
    run("two", stages("zb-v", 2, cut));
    run("three", stages("1f1b", 3, cut));
    run("half", stages("1f1b", 3, [](TrainConfig& c) { c.parallel.tp = 2, c.steps = 2; }));
    run("half", stages("zb-h1", 2, cut), true);
  });
  if (is_rank()) return;
  for (const char* out : {"two", "three", "half"}) expect_same("one", out);
}

// What stays between two steps.
TEST_F(StagesInParts, ARankKeepsItsShare) {
  c_.model.dim = 64;
  c_.model.tied_embeddings = false;
  distributed::on_processes(4, [&](int) {
    const auto kept = [&](int64_t zero) {
      TrainConfig c = c_;
      stages("1f1b", zero)(c);
      train(c, {.out = folder_ + cat("run", zero), .stop_requested = look_at_bytes, .log = nullptr});
      return g_bytes;
    };
    const auto whole = kept(0), one = kept(1), two = kept(2), three = kept(3);
    const double slack = 0.06 * whole[0];
    EXPECT_NEAR(one[2], whole[2] / 2, slack);
    EXPECT_NEAR(two[0], whole[0], slack);
    EXPECT_LE(two[1], whole[1] / 2 + slack);
    EXPECT_LE(three[0], whole[0] / 2 + slack);
    EXPECT_LE(three[1], whole[1] / 2 + slack);
    for (const auto& h : {two, three}) EXPECT_NEAR(h[2], whole[2] / 2, slack);
  });
}

TEST_F(StagesInParts, WhatTheyCannotDoIsRefusedByEveryRank) {
  distributed::on_processes(4, [&](int) {
    for (const int64_t zero : {2, 3}) {
      TrainConfig c = c_;
      stages("1f1b", zero, [](TrainConfig& of) { of.parallel.exact = 4; })(c);
      refuses(c, cat("parallel.zero = ", zero, " with parallel.pp = 2 is not for parallel.exact = 4: stages add up"));
    }
  });
}

}  // namespace
}  // namespace strata
