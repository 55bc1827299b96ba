// parallel.exact: strata train has the same bits on any number of ranks.

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "apps/strata/ranks_test_util.h"

namespace strata::cli {
namespace {

class Exact : public RanksTest {
 protected:
  void expect_same_run(const std::string& got, const std::string& want) const {
    const auto a = metrics(got), b = metrics(want);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].loss, b[i].loss) << got << ", step " << i + 1;
      ASSERT_EQ(a[i].grad_norm, b[i].grad_norm) << got << ", step " << i + 1;
      if (i % 20 != 19) continue;  // no validation
      ASSERT_EQ(a[i].valid_loss, b[i].valid_loss) << got << ", step " << i + 1;
    }
    ASSERT_FALSE(weights(want).empty());
    EXPECT_EQ(weights(got), weights(want)) << got;
  }
  std::string resume(int ranks, const std::string& out, const std::string& more = {}) const {
    return "launch -n " + std::to_string(ranks) + " -- " + program() + " train --resume --out " + (dir_ / out) + " " +
           more;
  }
  // Clipped in every step; dropout draws for each micro-batch.
  const std::string exact_ =
      "--set parallel.exact=4 --set train.accumulate=2 --set train.grad_clip=0.3 --set model.dropout=0.1 ";
};

TEST_F(Exact, AnyNumberOfRanksHasTheBitsOfOne) {
  const Result one = strata(train("one") + exact_);
  ASSERT_EQ(one.status, 0) << one.output;
  for (const StepMetrics& m : metrics("one")) EXPECT_GT(m.grad_norm, 0.3) << "nothing was clipped in step " << m.step;
  for (const int ranks : {2, 4}) {
    const std::string out = "ranks" + std::to_string(ranks);
    const Result r = strata(on(ranks, out) + exact_);
    ASSERT_EQ(r.status, 0) << r.output;
    expect_same_run(out, "one");
  }
  // It is the training of larger batches, up to rounding, where nothing is dropped.
  const std::string still = "--set train.accumulate=2 --set train.grad_clip=0.3 ";
  ASSERT_EQ(strata(train("batches") + still).status, 0);
  ASSERT_EQ(strata(train("micro") + still + "--set parallel.exact=8").status, 0);
  const auto want = metrics("batches"), got = metrics("micro");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
}

TEST_F(Exact, AlsoOfLowPrecisionAndAnotherFamily) {
  for (const std::string more :
       {"--set model.family=llama --set train.dtype=bf16 --set parallel.exact=8 --set train.optimizer=lion ",
        "--set train.dtype=bf16 --set train.param_dtype=bf16 --set parallel.exact=4 --set model.dropout=0.1 "}) {
    const std::string name = more.find("llama") != std::string::npos ? "llama" : "low";
    const std::string steps = more + "--steps 20 --set train.schedule=constant ";
    ASSERT_EQ(strata(train(name + "1") + steps).status, 0);
    const Result two = strata(on(2, name + "2") + steps), four = strata(on(4, name + "4") + steps);
    ASSERT_EQ(two.status, 0) << two.output;
    ASSERT_EQ(four.status, 0) << four.output;
    expect_same_run(name + "2", name + "1");
    expect_same_run(name + "4", name + "1");
  }
}

// Stopped and killed on one number of ranks, and gone on with on another.
TEST_F(Exact, ThroughAStopAndAKillOnOtherNumbersOfRanks) {
  ASSERT_EQ(strata(train("one") + exact_).status, 0);
  const std::string constant = exact_ + "--set train.schedule=constant ";
  ASSERT_EQ(strata(train("flat") + constant).status, 0);
  const Result begun = strata(on(4, "run") + constant + "--steps 15");
  ASSERT_EQ(begun.status, 0) << begun.output;
  const Result two = strata(resume(2, "run", "--steps 25"));
  ASSERT_EQ(two.status, 0) << two.output;
  const Result one = strata("train --resume --steps 40 --out " + (dir_ / "run"));
  ASSERT_EQ(one.status, 0) << one.output;
  EXPECT_EQ(weights("run"), weights("flat"));
  const auto got = metrics("run"), want = metrics("flat");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].loss, want[i].loss) << "step " << i + 1;

  Child child({"launch",
               "-n",
               "2",
               "--grace",
               "1",
               "--",
               program(),
               "train",
               dir_ / "tiny.toml",
               "--data",
               dir_ / "text.txt",
               "--out",
               dir_ / "killed",
               "--set",
               "parallel.exact=4",
               "--set",
               "train.accumulate=2",
               "--set",
               "train.grad_clip=0.3",
               "--set",
               "model.dropout=0.1"});
  Result resumed;
  ASSERT_NO_FATAL_FAILURE(kill_and_resume(child, "killed", resume(4, "killed"), resumed));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  expect_same_run("killed", "one");
}

// The optimizer's state in parts: the same bits again, clipping included.
TEST_F(Exact, AlsoOfStateInParts) {
  const std::string steps = exact_ + "--steps 20 ";
  ASSERT_EQ(strata(train("one") + steps).status, 0);
  const Result two = strata(on(2, "two") + steps + "--set parallel.zero=1");
  ASSERT_EQ(two.status, 0) << two.output;
  expect_same_run("two", "one");
}

// Gradients and parameters in parts, too: each rank's rows are summed in the same tree.
TEST_F(Exact, AlsoOfGradientsInParts) {
  // Of more elements than a chunk of the norm has.
  const std::string steps = exact_ + "--steps 20 --set model.dim=160 --set train.sample_tokens=2 ";
  ASSERT_EQ(strata(train("one") + steps).status, 0);
  for (const int zero : {2, 3})
    for (const int ranks : {2, 4}) {
      const std::string out = "zero" + std::to_string(zero) + "_" + std::to_string(ranks);
      const Result r = strata(on(ranks, out) + steps + "--set parallel.zero=" + std::to_string(zero));
      ASSERT_EQ(r.status, 0) << r.output;
      expect_same_run(out, "one");
    }
}

TEST_F(Exact, AlsoOfGradientsInPartsInLowPrecision) {
  const std::string six = " --set parallel.exact=6 --set train.batch=12 --steps 20 --set train.grad_clip=0.3 ";
  for (const auto& [name, more] : std::vector<std::pair<std::string, std::string>>{
           {"lion",
            "--set model.family=llama --set train.dtype=bf16 --set train.optimizer=lion --set parallel.reshard=never"},
           {"low",
            "--set train.dtype=bf16 --set train.param_dtype=bf16 --set train.param_update=compensated --set "
            "model.dropout=0.1"},
           {"f16", "--set train.dtype=f16 --set parallel.recompute=true"}}) {
    const Result one = strata(train(name) + more + six);
    ASSERT_EQ(one.status, 0) << one.output;
    for (const int ranks : {2, 3}) {
      const std::string out = name + std::to_string(ranks);
      const Result r = strata(on(ranks, out) + more + six + "--set parallel.zero=3");
      ASSERT_EQ(r.status, 0) << r.output;
      expect_same_run(out, name);
    }
  }
}

// Stopped and gone on with in another layout, killed and gone on with on another number of ranks.
TEST_F(Exact, GradientsInPartsThroughAStopAndAKill) {
  const std::string constant = exact_ + "--set train.schedule=constant ";
  ASSERT_EQ(strata(train("one") + constant).status, 0);
  const Result begun = strata(on(4, "run") + constant + "--set parallel.zero=3 --steps 15");
  ASSERT_EQ(begun.status, 0) << begun.output;
  const Result two = strata(resume(2, "run", "--steps 25 --set parallel.zero=2"));
  ASSERT_EQ(two.status, 0) << two.output;
  const Result last = strata("train --resume --steps 40 --set parallel.zero=0 --out " + (dir_ / "run"));
  ASSERT_EQ(last.status, 0) << last.output;
  expect_same_run("run", "one");

  std::vector<std::string> words{"launch",
                                 "-n",
                                 "2",
                                 "--grace",
                                 "1",
                                 "--",
                                 program(),
                                 "train",
                                 dir_ / "tiny.toml",
                                 "--data",
                                 dir_ / "text.txt",
                                 "--out",
                                 dir_ / "killed"};
  for (const char* const setting : {"parallel.exact=4", "parallel.zero=3", "train.accumulate=2", "train.grad_clip=0.3",
                                    "model.dropout=0.1", "train.schedule=constant"})
    words.insert(words.end(), {"--set", setting});
  Child child(words);
  Result resumed;
  ASSERT_NO_FATAL_FAILURE(kill_and_resume(child, "killed", resume(4, "killed"), resumed));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  expect_same_run("killed", "one");
}

// Layers on several ranks: each stage's gradients are added in the same tree, the tied table's parts of a micro-batch
// first.
TEST_F(Exact, AlsoOfStages) {
  const std::string steps = exact_ + "--steps 20 --set model.layers=4 --set model.dim=160 ";
  ASSERT_EQ(strata(train("one") + steps).status, 0);
  int number = 0;
  for (const auto& [ranks, more] : std::vector<std::pair<int, std::string>>{
           {2, "parallel.pp=2"},
           {4, "parallel.pp=2"},
           {4, "parallel.pp=4 --set parallel.schedule=gpipe"},
           {2, "parallel.pp=2 --set parallel.schedule=zb-h1"},
           {4, "parallel.pp=2 --set parallel.schedule=zb-v --set parallel.zero=1"},
           {4, "parallel.pp=2 --set parallel.schedule=interleaved --set parallel.zero=1"}}) {
    SCOPED_TRACE(more);
    const std::string out = "stages" + std::to_string(++number);
    const Result r = strata(on(ranks, out) + steps + "--set " + more);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("a pipeline of"), std::string::npos) << r.output;
    expect_same_run(out, "one");
  }
}

TEST_F(Exact, AlsoOfStagesInLowPrecisionAndAnotherFamily) {
  int number = 0;
  for (const std::string more :
       {"--set train.dtype=bf16 --set model.dropout=0.1", "--set train.dtype=f16 --set parallel.recompute=true",
        "--set model.family=llama --set train.dtype=bf16 --set model.tied_embeddings=false --set train.optimizer=lion",
        "--set model.experts=4 --set model.ffn_dim=64 --set model.balance_loss=0 --set model.z_loss=0"}) {
    const std::string steps = more + " --set parallel.exact=4 --set train.grad_clip=0.3 --steps 20 ";
    const std::string name = "low" + std::to_string(++number);
    const Result one = strata(train(name) + steps), four = strata(on(4, name + "pp") + steps + "--set parallel.pp=2");
    ASSERT_EQ(one.status, 0) << one.output;
    ASSERT_EQ(four.status, 0) << four.output;
    expect_same_run(name + "pp", name);
  }
}

// From stages to ranks of dp to one process.
TEST_F(Exact, StagesThroughAStopOnOtherLayouts) {
  const std::string constant = exact_ + "--set train.schedule=constant ";
  ASSERT_EQ(strata(train("one") + constant).status, 0);
  const Result begun = strata(on(4, "run") + constant + "--set parallel.pp=2 --steps 15");
  ASSERT_EQ(begun.status, 0) << begun.output;
  const Result parts = strata(resume(2, "run", "--steps 25 --set parallel.pp=1 --set parallel.zero=3"));
  ASSERT_EQ(parts.status, 0) << parts.output;
  const Result stages = strata(resume(2, "run", "--steps 33 --set parallel.pp=2 --set parallel.zero=0"));
  ASSERT_EQ(stages.status, 0) << stages.output;
  const Result last = strata("train --resume --steps 40 --set parallel.pp=1 --out " + (dir_ / "run"));
  ASSERT_EQ(last.status, 0) << last.output;
  expect_same_run("run", "one");
}

// Weights in parts: the bits depend on how they are cut, and not on how many ranks share the rows.
TEST_F(Exact, AlsoOfWeightsInParts) {
  const std::string more = exact_ + "--set train.sample_tokens=2 --steps 3 ";
  const Result cut = strata(on(2, "cut") + more + "--set parallel.tp=2");
  ASSERT_EQ(cut.status, 0) << cut.output;
  const Result both = strata(on(4, "both") + more + "--set parallel.tp=2 --set parallel.zero=1");
  ASSERT_EQ(both.status, 0) << both.output;
  expect_same_run("both", "cut");
  for (const std::string zero : {"2", "3"}) {
    const Result parts = strata(on(4, "zero" + zero) + more + "--set parallel.tp=2 --set parallel.zero=" + zero);
    ASSERT_EQ(parts.status, 0) << parts.output;
    expect_same_run("zero" + zero, "cut");
  }
  const Result whole = strata(train("whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const auto got = metrics("cut"), want = metrics("whole");
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
}

TEST_F(Exact, WhatItDoesNotServeIsRefusedByName) {
  for (const auto& [more, piece] : std::vector<std::pair<std::string, std::string>>{
           {"--set parallel.exact=3", "parallel.exact is 3, which does not divide the 8 rows of train.batch"},
           {"--set parallel.exact=1", "parallel.exact is 1, which 2 ranks do not share evenly"},
           {"--set parallel.exact=4 --set parallel.cp=2", "parallel.exact = 4 is not for parallel.cp = 2"},
           {"--set parallel.exact=4 --set parallel.pp=2 --set parallel.micro_batches=2",
            "parallel.micro_batches is 2, and parallel.exact = 4 on 1 ranks of parallel.dp means 4"},
           {"--set parallel.exact=4 --set parallel.pp=2 --set parallel.zero=2",
            "parallel.zero = 2 with parallel.pp = 2 is not for parallel.exact = 4"},
           {"--set parallel.exact=4 --set memory.device=1GiB", "parallel.exact = 4 is not for [memory]"},
           {"--set parallel.exact=4 --set data.format=chat", "is not for data.format = chat"},
           {"--set parallel.exact=4 --set train.dtype=fp8", "parallel.exact = 4 is not for train.dtype = fp8"},
           {"--set parallel.exact=4 --set train.dtype=bf16 --set train.grad_dtype=bf16",
            "is not for train.grad_dtype = bf16"}}) {
    const Result r = strata(on(2, "refused") + more);
    EXPECT_NE(r.status, 0) << more;
    EXPECT_NE(r.output.find(piece), std::string::npos) << more << "\n" << r.output;
  }
}

TEST_F(Exact, EstimateTellsOfTheSums) {
  const std::string estimate = "estimate " + (dir_ / "tiny.toml") + " --no-limits ";
  const Result plain = strata(estimate), exact = strata(estimate + "--set parallel.exact=8");
  ASSERT_EQ(exact.status, 0) << exact.output;
  EXPECT_NE(exact.output.find("parallel.exact's micro-batches"), std::string::npos) << exact.output;
  EXPECT_EQ(plain.output.find("micro-batches"), std::string::npos) << plain.output;
}

}  // namespace
}  // namespace strata::cli
