// Runs of stages the way of cards, with a library that plays NCCL: what ranks send each other beside the passes goes by
// the cards' groups, too.

#include "strata/dist/lane_test_util.h"
#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

class CardStages : public RankRunsTest {
 protected:
  CardStages() {
    c_.model.layers = 4;
    c_.model.dim = 16;
    c_.model.heads = 2;
    c_.model.context = 16;
    c_.model.dropout = 0.1;
    c_.batch = 8;
    c_.steps = 4;
    c_.eval_every = 2;
  }
  static Change stages(int64_t pp, const char* schedule, const Change& more = {}) {
    return [=](TrainConfig& c) {
      c.parallel.pp = pp;
      c.parallel.schedule = schedule;
      if (more) more(c);
    };
  }
};

TEST_F(CardStages, TrainAsOneProcess) {
  const Change untied = [](TrainConfig& c) { c.model.tied_embeddings = false; };
  const Change accumulated = [](TrainConfig& c) { c.accumulate = 2, c.batch = 4; };
  if (!is_rank()) {
    run("one", [](TrainConfig&) {});
    run("one_untied", untied);
    run("one_accumulated", accumulated);
  }
  distributed::on_processes(2, [&](int) {
    distributed::play_streams();
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"}) run(schedule, stages(2, schedule));
    run("untied", stages(2, "1f1b", untied));
    run("accumulated", stages(2, "1f1b", accumulated));
  });
  if (is_rank()) return;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"}) expect_same("one", schedule);
  expect_same("one_untied", "untied");
  expect_same("one_accumulated", "accumulated");
}

TEST_F(CardStages, BesideOthersTrainAsOneProcess) {
  if (!is_rank()) run("one", [](TrainConfig&) {});
  distributed::on_processes(4, [&](int) {
    distributed::play_streams();
    run("four", stages(4, "1f1b"));
    run("dp", stages(2, "1f1b"));
    for (const int64_t zero : {1, 2, 3})
      run(cat("zero", zero), stages(2, zero == 2 ? "zb-v" : "1f1b", [=](TrainConfig& c) { c.parallel.zero = zero; }));
    run("half", stages(2, "zb-h1", [](TrainConfig& c) { c.steps = 2; }));
    run("half", stages(4, "1f1b"), true);
  });
  if (is_rank()) return;
  for (const char* out : {"four", "dp", "zero1", "zero2", "zero3", "half"}) expect_same("one", out);
}

// The bits of one process, with the tied table's parts on a way of their own.
TEST_F(CardStages, ExactlyTrainAsOneProcess) {
  const Change exact = [](TrainConfig& c) { c.parallel.exact = 4; };
  if (!is_rank()) run("one", exact);
  distributed::on_processes(4, [&](int) {
    distributed::play_streams();
    run("four", stages(4, "1f1b", exact));
    run("dp", stages(2, "zb-h1", exact));
  });
  if (is_rank()) return;
  for (const char* out : {"four", "dp"}) {
    expect_same("one", out, 0);
    EXPECT_EQ(weights("one"), weights(out)) << out;
  }
}

}  // namespace
}  // namespace strata
