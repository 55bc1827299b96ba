// strata train on a pipeline of processes of this machine, as its users start it.

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

class PipelineRuns : public testing::Test {
 protected:
  PipelineRuns() {
    std::string text;
    for (int i = 0; i < 800; ++i) text += "line " + std::to_string(i % 37) + " of a small text\n";
    io::write_file(dir_ / "text.txt", text);
    io::write_file(dir_ / "tiny.toml",
                   "[model]\nlayers = 4\ndim = 32\nheads = 2\ncontext = 16\n[train]\nbatch = 8\nsteps = 12\n"
                   "sample_tokens = 0\nthreads = 1\nwarmup = 2\neval_every = 6\nsave_every = 6\n");
  }
  Result train(const std::string& out, const std::string& more = "", int ranks = 1) const {
    const std::string line = "train " + (dir_ / "tiny.toml") + " --data " + (dir_ / "text.txt") + " --out " +
                             (dir_ / out) + (more.empty() ? "" : " --set " + more);
    return strata(ranks == 1 ? line : on(ranks) + line);
  }
  std::string on(int ranks) const { return "launch -n " + std::to_string(ranks) + " -- " + program() + " "; }
  std::vector<StepMetrics> metrics(const std::string& out) const {
    return read_metrics((dir_ / out) + "/metrics.jsonl");
  }
  std::string file(const std::string& out, const std::string& name) const {
    const auto found = io::find_latest_checkpoint(dir_ / out);
    if (!found) return "";
    return io::encode_safetensors(io::load_checkpoint(*found, {name}).files.at(name));
  }
  // The run on `ranks` learns what the one in `one` did, within `near`.
  void expect_same(const std::string& one, const std::string& out, const std::string& more, int ranks,
                   double near = 1e-6) const {
    SCOPED_TRACE(more);
    const Result r = train(out, more, ranks);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("a pipeline of"), std::string::npos) << r.output;
    const auto want = metrics(one), got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, near) << "step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 10 * near) << "step " << i + 1;
    }
    EXPECT_NEAR(got.back().valid_loss, want.back().valid_loss, near);
  }
  io::TempDir dir_;
};

TEST_F(PipelineRuns, EverySchedulesLossesAreThoseOfOneProcess) {
  ASSERT_EQ(train("one").status, 0);
  for (const auto& s : distributed::pipeline::schedule_records())
    expect_same("one", std::string(s.name), "parallel.pp=2 parallel.schedule=" + std::string(s.name), 2);
}

TEST_F(PipelineRuns, BesideDataParallelism) {
  ASSERT_EQ(train("one").status, 0);
  expect_same("one", "1f1b", "parallel.pp=2 parallel.dp=2", 4);
  expect_same("one", "zb-v", "parallel.pp=2 parallel.dp=2 parallel.schedule=zb-v", 4);
  // The optimizer's state in parts: the bits of whole state, and one process goes on.
  expect_same("one", "zero", "parallel.pp=2 parallel.dp=2 parallel.zero=1", 4);
  EXPECT_EQ(file("zero", "model"), file("1f1b", "model"));
  EXPECT_EQ(file("zero", "optimizer"), file("1f1b", "optimizer"));
  const Result alone =
      strata("train --resume --steps 14 --out " + (dir_ / "zero") + " --set parallel.pp=1 parallel.dp=1");
  EXPECT_EQ(alone.status, 0) << alone.output;
}

// Untied, with batches that add up, more stages than ranks, blocks that are computed again.
TEST_F(PipelineRuns, OtherModelsAndLayouts) {
  const std::string llama = "model.family=llama model.tied_embeddings=false train.accumulate=2 ";
  ASSERT_EQ(train("one", llama).status, 0);
  expect_same("one", "four", llama + "parallel.pp=4 parallel.schedule=zb-h1", 4);
  expect_same("one", "again",
              llama +
                  "parallel.pp=2 parallel.schedule=breadth-first parallel.stages=2 parallel.micro_batches=2 "
                  "parallel.recompute=true",
              2);
}

TEST_F(PipelineRuns, LowPrecision) {
  for (const std::string dtype : {"bf16", "f16"}) {
    ASSERT_EQ(train(dtype, "train.dtype=" + dtype).status, 0);
    expect_same(dtype, dtype + "2", "parallel.pp=2 parallel.schedule=zb-h1 train.dtype=" + dtype, 2, 1e-3);
  }
}

TEST_F(PipelineRuns, DroppedNumbersDoNotDependOnTheSchedule) {
  const std::string dropout = "model.dropout=0.1 parallel.pp=2 ";
  ASSERT_EQ(train("1f1b", dropout, 2).status, 0);
  ASSERT_EQ(train("zb-h1", dropout + "parallel.schedule=zb-h1", 2).status, 0);
  ASSERT_EQ(train("again", dropout + "parallel.recompute=true", 2).status, 0);
  const std::string want = file("1f1b", "model");
  EXPECT_FALSE(want.empty());
  EXPECT_EQ(file("zb-h1", "model"), want);
  EXPECT_EQ(file("again", "model"), want);
}

// A checkpoint is that of any run: its files are whole, and other layouts go on from it.
TEST_F(PipelineRuns, GoOnFromWhatTheySaved) {
  const std::string layout = "parallel.pp=2 parallel.dp=2 parallel.schedule=zb-h1 model.dropout=0.1 ";
  ASSERT_EQ(train("whole", layout, 4).status, 0);
  ASSERT_EQ(train("parts", layout + "train.steps=7 train.schedule=constant", 4).status, 0);
  ASSERT_EQ(train("straight", layout + "train.schedule=constant", 4).status, 0);
  const Result r = strata(on(4) + "train --resume --steps 12 --out " + (dir_ / "parts"));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(file("parts", "model"), file("straight", "model"));
  EXPECT_EQ(file("parts", "optimizer"), file("straight", "optimizer"));
  // One process goes on with what four have saved, and writes text with it.
  const Result one =
      strata("train --resume --steps 14 --out " + (dir_ / "parts") + " --set parallel.pp=1 parallel.dp=1");
  ASSERT_EQ(one.status, 0) << one.output;
  EXPECT_EQ(metrics("parts").size(), 14U);
  EXPECT_EQ(strata("generate --checkpoint " + (dir_ / "parts") + " --prompt line --tokens 5").status, 0);
}

TEST_F(PipelineRuns, ShowASampleOfWhatTheySaved) {
  const Result r = train("run", "parallel.pp=2 train.sample_tokens=20", 2);
  ASSERT_EQ(r.status, 0) << r.output;
  const std::string page = io::read_file((dir_ / "run") + "/report.html");
  EXPECT_NE(page.find("<h2>Sample</h2>"), std::string::npos);
  // The time line of the second step, both ranks in it.
  const std::string trace = io::read_file((dir_ / "run") + "/step.trace.json");
  for (const char* piece : {"rank 0", "rank 1", "F of micro-batch 0 at stage 1", "B of micro-batch 3 at stage 0"})
    EXPECT_NE(trace.find(piece), std::string::npos) << piece;
}

TEST_F(PipelineRuns, AStageThatDiesIsNamed) {
  // Rank 1 is killed through the shell that started it, once there is a checkpoint.
  const Result r = strata("launch -n 2 --grace 30 -- sh -c 'if [ $RANK = 1 ]; then (while ! ls -d " + (dir_ / "run") +
                          "/step-*; do sleep 0.1; done >/dev/null 2>&1; kill -9 $$) & fi; exec " +
                          std::string(program()) + " train " + (dir_ / "tiny.toml") + " --data " + (dir_ / "text.txt") +
                          " --out " + (dir_ / "run") + " --set parallel.pp=2 --set train.steps=1000000 --quiet'");
  EXPECT_EQ(r.status, 128 + SIGKILL) << r.output;
  EXPECT_NE(r.output.find("[0] strata: error: "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("rank 1 ("), std::string::npos) << r.output;
}

TEST_F(PipelineRuns, SettingsThatNoPipelineCanCarryOutAreRefused) {
  for (const auto& [more, piece] : std::vector<std::pair<std::string, std::string>>{
           {"parallel.pp=3", "parallel.pp is 3, and the job has 2 ranks"},
           {"parallel.pp=2 parallel.dp=2", "parallel.dp is 2 and parallel.pp is 2, and the job has 2 ranks"},
           {"parallel.pp=2 parallel.schedule=2f2b", "zb-h1"},
           {"parallel.pp=2 parallel.micro_batches=3", "parallel.micro_batches is 3, which does not divide the 8 rows"},
           {"parallel.pp=2 parallel.stages=2", "parallel.stages is 2, and 1f1b has 1 on each rank"},
           {"parallel.pp=2 parallel.schedule=interleaved parallel.stages=4",
            "are 8 stages, and the model has 4 blocks"},
           {"parallel.pp=2 tune.method=lora", "parallel.pp = 2 is for tune.method = full"}}) {
    const Result r = train("refused", more, 2);
    EXPECT_NE(r.status, 0) << more;
    EXPECT_NE(r.output.find(piece), std::string::npos) << more << "\n" << r.output;
  }
}

}  // namespace
}  // namespace strata::cli
