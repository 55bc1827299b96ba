// strata train over several processes of this machine, as its users start it.

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "apps/strata/ranks_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/config.h"
#include "strata/train/estimate.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

using Parallel = RanksTest;

TEST_F(Parallel, AnyNumberOfRanksLearnsWhatOneDoes) {
  const Result one = strata(train("one"));
  ASSERT_EQ(one.status, 0) << one.output;
  const auto want = metrics("one");
  for (const int ranks : {2, 4}) {
    const std::string out = "ranks" + std::to_string(ranks);
    const Result r = strata(on(ranks, out));
    ASSERT_EQ(r.status, 0) << r.output;
    // Told once, by rank 0.
    EXPECT_EQ(r.output.find("finished: 40 steps"), r.output.rfind("finished: 40 steps")) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << ranks << " ranks, step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-2 * want[i].grad_norm) << ranks << " ranks, step " << i + 1;
    }
    EXPECT_NEAR(got[19].valid_loss, want[19].valid_loss, 1e-3);
  }
}

// Weights cut among ranks: what one process learns, whatever the layout, with dropout where no rows are cut, through a
// stop, and on in another layout.
TEST_F(Parallel, WeightsInPartsLearnWhatOneProcessDoes) {
  const std::string size = " --steps 100 --set model.heads=4 --set train.sample_tokens=4 ";
  const std::string gpt = size, llama = size + "--set model.family=llama --set model.kv_heads=2 ";
  struct Case {
    std::string name, settings;
    int ranks;
    std::string layout;
  };
  std::map<std::string, std::vector<StepMetrics>> known;
  for (const Case& c : std::vector<Case>{
           {"gpt", gpt, 2, "--set parallel.tp=2"},
           {"dropped_gpt", gpt + "--set model.dropout=0.1 ", 2, "--set parallel.tp=2"},
           {"llama", llama, 2, "--set parallel.tp=2 --set parallel.sequence=false"},
           {"llama", llama, 4, "--set parallel.dp=2 --set parallel.tp=2"},
           {"dropped_llama", llama + "--set model.dropout=0.1 --set train.accumulate=2 ", 2, "--set parallel.tp=2"}}) {
    SCOPED_TRACE(c.name + " " + c.layout);
    if (!known.contains(c.name)) {
      const Result one = strata(train("one_" + c.name) + c.settings);
      ASSERT_EQ(one.status, 0) << one.output;
      known[c.name] = metrics("one_" + c.name);
    }
    const std::vector<StepMetrics>& want = known.at(c.name);
    const std::string out = cat(c.name, c.ranks);
    const Result r = strata(on(c.ranks, out) + c.settings + c.layout);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("finished: 100 steps"), std::string::npos) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-2 * want[i].grad_norm) << "step " << i + 1;
    }
    EXPECT_NEAR(got[99].valid_loss, want[99].valid_loss, 1e-3);
  }
}

TEST_F(Parallel, ARunWithWeightsInPartsGoesOnInAnyLayout) {
  const std::string more = "--set model.heads=4 --set model.dropout=0.1 ";
  ASSERT_EQ(strata(train("one") + more).status, 0);
  const Result cut = strata(on(2, "run") + more + "--steps 20 --set parallel.tp=2");
  ASSERT_EQ(cut.status, 0) << cut.output;
  const std::string resume = " train --resume --out " + (dir_ / "run");
  const Result again = strata("launch -n 2 -- " + std::string(program()) + resume + " --steps 30");
  ASSERT_EQ(again.status, 0) << again.output;
  const Result whole = strata(resume.substr(1) + " --steps 40 --set parallel.tp=1");
  ASSERT_EQ(whole.status, 0) << whole.output;
  const auto got = metrics("run"), want = metrics("one");
  ASSERT_EQ(got.size(), 40U);
  // The same schedule is that of 40 steps only where it has not begun to fall: the first steps.
  EXPECT_LT(got[39].loss, got[0].loss);
  EXPECT_NEAR(got[4].loss, want[4].loss, 1e-3);
  const Result text = strata("generate --checkpoint " + (dir_ / "run") + " --prompt line --tokens 4");
  EXPECT_EQ(text.status, 0) << text.output;
}

// Another model than the plain one, which its checkpoints know, and the same on any number of ranks.
TEST_F(Parallel, ALadderLearnsWhatOneProcessDoes) {
  const std::string more = "--steps 20 --set model.family=llama --set model.heads=4 --set model.residual=ladder ";
  ASSERT_EQ(strata(train("one") + more).status, 0);
  const Result plain = strata(train("plain") + more + "--set model.residual=plain");
  ASSERT_EQ(plain.status, 0) << plain.output;
  const auto want = metrics("one");
  ASSERT_EQ(want.size(), 20U);
  EXPECT_NE(want[19].loss, metrics("plain")[19].loss);
  for (const char* sequence : {"true", "false"}) {
    const std::string out = cat("ladder_", sequence);
    const Result r = strata(on(2, out) + more + "--set parallel.tp=2 --set parallel.sequence=" + sequence);
    ASSERT_EQ(r.status, 0) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
  }
  // The checkpoint says what it is: one process goes on, and writes.
  const Result whole = strata("train --resume --steps 22 --set parallel.tp=1 --out " + (dir_ / "ladder_true"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_EQ(strata("generate --checkpoint " + (dir_ / "ladder_true") + " --prompt line --tokens 4").status, 0);
  const Result stages = strata(on(2, "stages") + more + "--set parallel.pp=2");
  EXPECT_NE(stages.status, 0);
  EXPECT_NE(stages.output.find("parallel.pp = 2 is for model.residual = plain, not ladder"), std::string::npos)
      << stages.output;
}

TEST_F(Parallel, ADivergedStepIsNamedByAllThatShareWeights) {
  const Result r = strata(on(2, "diverged") +
                          "--set model.heads=4 --set parallel.tp=2 --set train.lr=1000 --set train.warmup=0 --set "
                          "train.grad_clip=0 --set train.optimizer=sgd");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.output.find("first produced by"), std::string::npos) << r.output;
}

// The step in one graph, collectives and update included.
TEST_F(Parallel, AnyNumberOfCardsLearnsWhatOneDoes) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two cards, and there are " << cuda::device_count();
  const std::string on_cards = "--device cuda --set train.graph=on ";
  const Result one = strata(train("one") + on_cards);
  ASSERT_EQ(one.status, 0) << one.output;
  const auto want = metrics("one");
  std::string weights_before;
  for (const char* out : {"two", "again"}) {
    const Result r = strata(on(2, out) + on_cards);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("the step is one CUDA graph"), std::string::npos) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
    if (weights_before.empty()) {
      weights_before = weights(out);
    } else {
      EXPECT_EQ(weights(out), weights_before);
    }
  }
}

TEST_F(Parallel, ACardOfAnyNumberLearnsTheSame) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two cards, and there are " << cuda::device_count();
  for (const char* card : {"cuda:0", "cuda:1"}) {
    const Result r = strata(train(card) + "--device " + card);
    ASSERT_EQ(r.status, 0) << r.output;
  }
  EXPECT_EQ(weights("cuda:0"), weights("cuda:1"));
}

TEST_F(Parallel, MoreRanksThanCardsAreRefused) {
  const int cards = cuda::device_count();
  const Result r = strata(on(cards + 2, "many") + "--device cuda ");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.output.find("each needs one"), std::string::npos) << r.output;
}

TEST_F(Parallel, TheSameLayoutGivesTheSameBitsAlsoThroughAStop) {
  const std::string more = "--set model.dropout=0.1 --set train.accumulate=2 ";
  const Result whole = strata(on(2, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result again = strata(on(2, "again") + more);
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(weights("whole"), weights("again"));

  // Ended by a rank that is killed: the newest checkpoint is whole, and the run goes on from it to the same weights.
  Child child({"launch", "-n", "2", "--grace", "1", "--", program(), "train", dir_ / "tiny.toml", "--data",
               dir_ / "text.txt", "--out", dir_ / "killed", "--set", "model.dropout=0.1", "--set",
               "train.accumulate=2"});
  Result resumed;
  ASSERT_NO_FATAL_FAILURE(kill_and_resume(
      child, "killed", "launch -n 2 -- " + std::string(program()) + " train --resume --out " + (dir_ / "killed"),
      resumed));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
}

// The advice starts as many ranks, in the way in which these were started.
TEST_F(Parallel, AStoppedRunNamesTheLaunchThatGoesOn) {
  const std::string stops = train("stopped") + "--set train.max_seconds=1e-9";
  const Result r = strata("launch -n 2 --grace 7 -- " + std::string(program()) + " " + stops);
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("go on with: strata launch -n 2 --grace 7 -- strata train --resume --out " +
                          (dir_ / "stopped") + "\n"),
            std::string::npos)
      << r.output;
  const Result alone = strata("train --resume --out " + (dir_ / "stopped") + " --set train.max_seconds=1e-9");
  EXPECT_NE(alone.output.find("go on with: strata train --resume --out "), std::string::npos) << alone.output;
}

// Parts change nothing: losses, validation and weights of ZeRO are those of ranks that have the whole model each.
TEST_F(Parallel, ZeroHasTheBitsOfWholeReplicas) {
  for (const std::string family : {"gpt", "llama"}) {
    const std::string more =
        "--steps 50 --set model.family=" + family + " --set train.grad_clip=0.5 --set train.sample_tokens=8 ";
    const std::string plain = family + "0";
    const Result whole = strata(on(4, plain) + more);
    ASSERT_EQ(whole.status, 0) << whole.output;
    const auto want = metrics(plain);
    ASSERT_EQ(want.size(), 50U);
    for (const std::string zero : {"1", "2", "3"}) {
      const std::string out = family + zero;
      const Result r = strata(on(4, out) + more + "--set parallel.zero=" + zero);
      ASSERT_EQ(r.status, 0) << r.output;
      const auto got = metrics(out);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].loss, want[i].loss) << out << ", step " << i + 1;
        ASSERT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-9 * want[i].grad_norm) << out << ", step " << i + 1;
      }
      EXPECT_EQ(got[19].valid_loss, want[19].valid_loss) << out;
      EXPECT_EQ(weights(out), weights(plain)) << out;
    }
  }
}

// A table of more rows than a batch names is looked up by these (nn::FullyShardedOptions::rows_from): the bits of whole
// replicas where the model has a head of its own, with clipping, dropout, uneven rows, in sums of micro-batches, and
// through a stop.
TEST_F(Parallel, ATableIsReadByItsRows) {
  const std::string more =
      "--steps 20 --set train.batch=6 --set model.vocab=4096 --set train.grad_clip=0.5 --set model.dropout=0.1 "
      "--set train.eval_every=10 ";
  const std::string own = more + "--set model.tied_embeddings=false ";
  for (const std::string with : {"", "--set 'parallel.shares=3 1 2' ", "--set train.dtype=bf16 ",
                                 "--set parallel.every_pass=false --set train.accumulate=2 "}) {
    SCOPED_TRACE(with);
    const std::string name = std::to_string(std::hash<std::string>()(with));
    const bool once = with.find("every_pass") != with.npos;
    const Result whole = strata(on(3, "whole" + name) + own + (once ? "--set train.accumulate=2" : with));
    ASSERT_EQ(whole.status, 0) << whole.output;
    const Result rows = strata(on(3, "rows" + name) + own + with + "--set parallel.zero=3");
    ASSERT_EQ(rows.status, 0) << rows.output;
    EXPECT_EQ(metrics("rows" + name).back().loss, metrics("whole" + name).back().loss);
    EXPECT_EQ(weights("rows" + name), weights("whole" + name));
  }
  const std::string exact = own + "--set train.batch=8 --set parallel.exact=4 ";
  ASSERT_EQ(strata(train("one") + exact).status, 0);
  const Result parts = strata(on(2, "parts") + exact + "--set parallel.zero=3");
  ASSERT_EQ(parts.status, 0) << parts.output;
  EXPECT_EQ(weights("parts"), weights("one"));
  // Of a table that the output layer reads, too, the terms are added in another order.
  ASSERT_EQ(strata(on(3, "tied") + more).status, 0);
  const std::string zero = more + "--set parallel.zero=3 ";
  const Result tied = strata(on(3, "tied3") + zero);
  ASSERT_EQ(tied.status, 0) << tied.output;
  const auto want = metrics("tied"), got = metrics("tied3");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i].loss, want[i].loss, 1e-5) << "step " << i + 1;
  const std::string constant = zero + "--set train.schedule=constant ";
  std::string half = constant;
  half.replace(half.find("--steps 20"), 10, "--steps 10");
  ASSERT_EQ(strata(on(3, "stopped") + half).status, 0);
  ASSERT_EQ(strata(on(3, "through") + constant).status, 0);
  const Result again =
      strata("launch -n 3 -- " + std::string(program()) + " train --resume --steps 20 --out " + (dir_ / "stopped"));
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(weights("stopped"), weights("through"));
  // And that travels as rows does: less is said to be sent.
  const auto sent = [](const std::string& vocab) {
    return estimate_memory(parse_config("", "test",
                                        {"parallel.dp=3", "parallel.zero=3", "model.tied_embeddings=false",
                                         "model.layers=2", "model.dim=32", "model.heads=2", "model.context=16",
                                         "train.batch=6", "model.vocab=" + vocab}))
        .sends_parameters;
  };
  EXPECT_LE(sent("8192") - sent("4096"), 2 * 4096 * 32 * 4 * 2 / 3 + 4096) << "more than the head's comes";
}

// What tensor parallelism leaves a rank is shared out again: what one process learns, and checkpoints for any layout.
TEST_F(Parallel, ZeroOfWeightsInParts) {
  const std::string more = "--set model.heads=4 --set train.schedule=constant ";
  ASSERT_EQ(strata(train("one") + more + "--steps 56").status, 0);
  const auto want = metrics("one");
  const auto expect_near = [&](const std::string& out, size_t steps) {
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), steps) << out;
    for (size_t i = 0; i < steps; ++i) {
      ASSERT_NEAR(got[i].loss, want[i].loss, 1e-3) << out << ", step " << i + 1;
      ASSERT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-2 * want[i].grad_norm) << out << ", step " << i + 1;
    }
  };
  const Result three = strata(on(4, "run") + more + "--steps 50 --set parallel.tp=2 --set parallel.zero=3");
  ASSERT_EQ(three.status, 0) << three.output;
  EXPECT_NEAR(metrics("run")[19].valid_loss, want[19].valid_loss, 1e-3);
  const std::string resume = " train --resume --out " + (dir_ / "run");
  const Result one = strata(resume.substr(1) + " --steps 52 --set parallel.tp=1");
  ASSERT_EQ(one.status, 0) << one.output;
  const Result two = strata("launch -n 2 -- " + std::string(program()) + resume + " --steps 54 --set parallel.zero=2");
  ASSERT_EQ(two.status, 0) << two.output;
  const Result four = strata("launch -n 4 -- " + std::string(program()) + resume + " --steps 56 --set parallel.tp=2");
  ASSERT_EQ(four.status, 0) << four.output;
  ASSERT_NO_FATAL_FAILURE(expect_near("run", 56));
  // Other shapes, passes that add up, whole gradients.
  const std::string llama =
      more + "--steps 4 --set model.family=llama --set model.kv_heads=2 --set train.accumulate=2 ";
  ASSERT_EQ(strata(on(4, "plain") + llama + "--set parallel.tp=2").status, 0);
  const Result zero = strata(on(4, "zero") + llama + "--set parallel.tp=2 --set parallel.zero=2");
  ASSERT_EQ(zero.status, 0) << zero.output;
  EXPECT_EQ(weights("zero"), weights("plain"));
}

TEST_F(Parallel, BlocksLieAmongAsManyRanksAsIsSaidUntilBackward) {
  const std::string more = "--steps 20 --set model.layers=3 ";
  const Result whole = strata(on(4, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  for (const std::string to : {"always", "never", "2"}) {
    const Result r = strata(on(4, to) + more + "--set parallel.zero=3 --set parallel.reshard=" + to);
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_EQ(weights(to), weights("whole")) << to;
    EXPECT_EQ(metrics(to)[19].loss, metrics("whole")[19].loss) << to;
  }
}

// What `strata estimate` says of a rank, beside what rank 0 had at most.
TEST_F(Parallel, ARankTakesWhatWasEstimated) {
  const std::vector<std::string> shape{"model.layers=6", "model.dim=256", "model.heads=4", "model.context=64"};
  for (const std::string& way :
       {std::string("parallel.zero=0"), std::string("parallel.zero=1"), std::string("parallel.zero=2"),
        std::string("parallel.zero=3"), std::string("parallel.zero=3 parallel.reshard=never"),
        std::string("parallel.zero=3 train.accumulate=2"), std::string("parallel.zero=3 train.dtype=bf16"),
        std::string("parallel.zero=2 parallel.exact=4"), std::string("parallel.zero=3 parallel.exact=8"),
        std::string("parallel.tp=2 parallel.zero=3"), std::string("parallel.tp=4 parallel.sequence=false")}) {
    SCOPED_TRACE(way);
    std::vector<std::string> settings{"train.batch=8"};
    settings.insert(settings.end(), shape.begin(), shape.end());
    std::string words = "--steps 3 --set train.eval_every=0 --set train.save_every=-1 --set train.batch=8";
    for (const std::string& s : shape) words += " --set " + s;
    for (size_t at = 0; at < way.size();) {
      const size_t end = std::min(way.find(' ', at), way.size());
      settings.push_back(way.substr(at, end - at));
      words += " --set " + settings.back();
      at = end + 1;
    }
    const int64_t dp = way.find("tp=4") != way.npos ? 1 : way.find("tp=2") != way.npos ? 2 : 4;
    settings.emplace_back(cat("parallel.dp=", dp));
    const MemoryEstimate e = estimate_memory(parse_config("", "test", settings));
    EXPECT_EQ(e.ranks, dp);
    EXPECT_EQ(e.sends_gradients > 0, dp > 1);
    const std::string out = "run" + std::to_string(std::hash<std::string>()(way));
    const Result r = strata(on(4, out) + words);
    ASSERT_EQ(r.status, 0) << r.output;
    const double peak = metrics(out).back().peak_memory;
    // Of bf16 what products leave with their threads is counted, too, which is no tensor's.
    const bool low = way.find("bf16") != std::string::npos;
    EXPECT_LE(static_cast<double>(e.peak) / peak, low ? 1.3 : 1.1) << e.peak << " and " << peak;
    EXPECT_GE(static_cast<double>(e.peak) / peak, 0.9) << e.peak << " and " << peak;
    std::printf("%s: said %lld bytes, %.0f at most\n", way.c_str(), static_cast<long long>(e.peak), peak);
  }
  // What checkpoints beside the steps keep.
  const TrainConfig copied = parse_config("", "test", {"train.save_async=true", "parallel.dp=2"}),
                    waited = parse_config("", "test", {"parallel.dp=2"});
  EXPECT_EQ(estimate_memory(copied).copies,
            (estimate_memory(waited).parameters + estimate_memory(waited).optimizer) / 2);
  EXPECT_EQ(estimate_memory(copied).peak, estimate_memory(waited).peak + estimate_memory(copied).copies);
  const Result told =
      strata("estimate --no-limits --set parallel.dp=4 --set parallel.zero=3 --set train.save_async=true");
  ASSERT_EQ(told.status, 0) << told.output;
  EXPECT_NE(told.output.find("by one of 4 ranks in a step: parameters "), std::string::npos) << told.output;
  EXPECT_NE(told.output.find("of what a checkpoint holds, in the host's memory"), std::string::npos) << told.output;
  const Result alone = strata("estimate --no-limits");
  EXPECT_EQ(alone.output.find("ranks in a step"), std::string::npos) << alone.output;
}

TEST_F(Parallel, ZeroAddsUpPassesAndGoesOnAfterAStop) {
  const std::string more = "--set train.accumulate=2 ";
  const Result whole = strata(on(2, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const auto want = metrics("whole");
  // With 3 whole gradients may add up, too: the bits are those of whole replicas then.
  const Result once = strata(on(2, "once") + more + "--set parallel.zero=3 --set parallel.every_pass=false");
  ASSERT_EQ(once.status, 0) << once.output;
  EXPECT_EQ(weights("once"), weights("whole"));
  for (const std::string zero : {"1", "2", "3"}) {
    const std::string with = more + "--set parallel.zero=" + zero + " ";
    const std::string out = "zero" + zero, stopped = "stopped" + zero;
    const Result r = strata(on(2, out) + with);
    ASSERT_EQ(r.status, 0) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      // ZeRO 3 adds up the passes' averages, not the passes.
      ASSERT_NEAR(got[i].loss, want[i].loss, zero == "3" ? 1e-5 : 0) << out << ", step " << i + 1;
    }
    ASSERT_EQ(strata(on(2, stopped) + with + "--steps 20 --set train.schedule=constant").status, 0);
    ASSERT_EQ(strata(on(2, out + "c") + with + "--set train.schedule=constant").status, 0);
    const Result on_again =
        strata("launch -n 2 -- " + std::string(program()) + " train --resume --steps 40 --out " + (dir_ / stopped));
    ASSERT_EQ(on_again.status, 0) << on_again.output;
    EXPECT_EQ(weights(stopped), weights(out + "c")) << out;
  }
  // What parts have learnt one rank goes on with, and the other way round.
  const Result one = strata("train --resume --steps 42 --out " + (dir_ / "zero3"));
  ASSERT_EQ(one.status, 0) << one.output;
  const Result four =
      strata("launch -n 4 -- " + std::string(program()) + " train --resume --steps 44 --out " + (dir_ / "zero3"));
  ASSERT_EQ(four.status, 0) << four.output;
}

TEST_F(Parallel, ARunGoesOnWithAnotherNumberOfRanks) {
  ASSERT_EQ(strata(on(4, "run") + "--steps 20 ").status, 0);
  const Result one = strata("train --resume --steps 30 --out " + (dir_ / "run"));
  ASSERT_EQ(one.status, 0) << one.output;
  const Result two =
      strata("launch -n 2 -- " + std::string(program()) + " train --resume --steps 40 --out " + (dir_ / "run"));
  ASSERT_EQ(two.status, 0) << two.output;
  const auto m = metrics("run");
  ASSERT_EQ(m.size(), 40U);
  EXPECT_LT(m[39].loss, m[0].loss);
  ASSERT_EQ(strata(train("one") + "--steps 20").status, 0);
  EXPECT_NEAR(m[19].loss, metrics("one")[19].loss, 1e-3);
}

// Random numbers belong to the batch's rows, whoever computes them: with dropout ranks learn what one learns, and go on
// as one would.
TEST_F(Parallel, DropoutDropsWhatOneRankWould) {
  const std::string steps =
      "--set train.eval_every=5 --set model.heads=4 --set model.dropout=0.2 --set train.sample_tokens=4 ";
  const Result one = strata(train("one") + steps + "--steps 10");
  ASSERT_EQ(one.status, 0) << one.output;
  const auto want = metrics("one");
  const auto expect_alike = [&](const std::string& out) {
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i].loss, want[i].loss, 1e-5) << out << ", step " << i + 1;
      ASSERT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-4 * want[i].grad_norm) << out << ", step " << i + 1;
    }
  };
  for (const auto& [out, ranks, more] : std::vector<std::tuple<std::string, int, std::string>>{
           {"zero", 2, "--set parallel.zero=3 --set parallel.recompute=true"},
           {"uneven", 2, "--set 'parallel.shares=3 1'"},
           {"cut", 4, "--set parallel.tp=2"},
           {"stages", 4, "--set parallel.pp=2 --set parallel.schedule=zb-h1 --set parallel.recompute=true"}}) {
    const Result r = strata(on(ranks, out) + steps + "--steps 10 " + more);
    ASSERT_EQ(r.status, 0) << r.output;
    expect_alike(out);
  }
  // Begun on two stages, ended on two ranks.
  ASSERT_EQ(strata(on(2, "begun") + steps + "--steps 10 --set train.max_seconds=0.001 --set parallel.pp=2").status, 0);
  const Result r = strata("launch -n 2 -- " + std::string(program()) + " train --resume --out " + (dir_ / "begun") +
                          " --set train.max_seconds=0 --set parallel.pp=1 --set parallel.dp=2");
  ASSERT_EQ(r.status, 0) << r.output;
  expect_alike("begun");
}

// A rank that is to have less has fewer rows: the batch, and what is learned of it, are the same.
TEST_F(Parallel, RowsAreSharedInAnyProportion) {
  const std::string steps = "--steps 10 --set train.eval_every=10 --set model.heads=4 --set train.accumulate=2 ";
  const Result one = strata(train("one") + steps);
  ASSERT_EQ(one.status, 0) << one.output;
  const auto want = metrics("one");
  for (const auto& [out, ranks, more] : std::vector<std::tuple<std::string, int, std::string>>{
           {"two", 2, "--set 'parallel.shares=3 1'"},
           {"three", 3, "--set 'parallel.shares=1 5.5 1' --set parallel.zero=3"},
           {"cut", 4, "--set 'parallel.shares=5 3' --set parallel.tp=2 --set parallel.zero=1"}}) {
    const Result r = strata(on(ranks, out) + steps + more);
    ASSERT_EQ(r.status, 0) << r.output;
    const auto got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i].loss, want[i].loss, 1e-4) << out << ", step " << i + 1;
      ASSERT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-3 * want[i].grad_norm) << out << ", step " << i + 1;
    }
    EXPECT_NEAR(got[9].valid_loss, want[9].valid_loss, 1e-4);
  }
}

// Each rank has written a part, and a damaged one is named and passed over, for the same bits.
TEST_F(Parallel, ADamagedPartSendsARunBackToTheCheckpointBefore) {
  ASSERT_EQ(strata(on(4, "run")).status, 0);
  const std::string want = weights("run"), newest = (dir_ / "run") + "/step-00000040";
  for (int r = 0; r < 4; ++r)
    EXPECT_TRUE(std::filesystem::exists(newest + "/model.rank-" + std::to_string(r) + ".safetensors")) << r;
  const Result text = strata("generate --model " + (dir_ / "run") + " --prompt line --tokens 4");
  EXPECT_EQ(text.status, 0) << text.output;
  const std::string part = newest + "/optimizer.rank-2.safetensors";
  std::filesystem::resize_file(part, std::filesystem::file_size(part) - 1);
  const Result again =
      strata("launch -n 4 -- " + std::string(program()) + " train --resume --steps 40 --out " + (dir_ / "run"));
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("optimizer.rank-2.safetensors' has "), std::string::npos) << again.output;
  EXPECT_NE(again.output.find("going on after step 30"), std::string::npos) << again.output;
  EXPECT_EQ(weights("run"), want);
}

TEST_F(Parallel, SettingsThatRanksCannotCarryOutAreRefused) {
  for (const auto& [more, piece] : std::vector<std::pair<std::string, std::string>>{
           {"--set train.batch=9", "train.batch is 9, which 2 ranks do not share evenly"},
           {"--set parallel.dp=3", "parallel.dp is 3, and the job has 2 ranks"},
           {"--set parallel.tp=3", "parallel.tp is 3, and the job has 2 ranks"},
           {"--set parallel.dp=2 --set parallel.tp=2",
            "parallel.dp is 2 and parallel.tp is 2, and the job has 2 ranks"},
           {"--set parallel.tp=2 --set parallel.pp=2",
            "parallel.pp is 2 and parallel.tp is 2, and the job has 2 ranks"},
           {"--set parallel.tp=2 --set model.heads=1", "do not divide the heads of blocks.0.attn: 1 of queries"},
           {"--set parallel.zero=3 --set parallel.exact=4 --set parallel.pp=2",
            "parallel.zero = 3 with parallel.pp = 2 is not for parallel.exact = 4"},
           {"--set parallel.zero=3 --set parallel.reshard=3",
            "parallel.reshard is '3': wanted always, never, or a number"},
           {"--set parallel.zero=3 --set parallel.reshard=some", "parallel.reshard is 'some': wanted"},
           {"--set 'parallel.shares=1 2 3'",
            "parallel.shares is '1 2 3', of 3 numbers: wanted one for each of the 2 ranks"},
           {"--set 'parallel.shares=1 -2'", "parallel.shares is '1 -2': '-2' is no positive number"},
           {"--set 'parallel.shares=99 1'", "parallel.shares is '99 1', by which rank 1 has no row of a batch of 8"},
           {"--set 'parallel.shares=2 1' --set parallel.exact=4", "is not for parallel.exact"},
           {"--set memory.device=1GiB", "[memory] is for one rank"}}) {
    const Result r = strata(on(2, "refused") + more);
    EXPECT_NE(r.status, 0) << more;
    EXPECT_NE(r.output.find(piece), std::string::npos) << r.output;
  }
  const Result alone = strata(train("refused") + "--set parallel.dp=2");
  EXPECT_NE(alone.status, 0);
  EXPECT_NE(alone.output.find("strata launch -n 2"), std::string::npos) << alone.output;
}

TEST_F(Parallel, ARankThatIsKilledIsNamedByTheOthers) {
  // Rank 1 is killed through the shell that started it, once there is a checkpoint.
  const Result r = strata("launch -n 2 --grace 30 -- sh -c 'if [ $RANK = 1 ]; then (while ! ls -d " + (dir_ / "run") +
                          "/step-*; do sleep 0.1; done >/dev/null 2>&1; kill -9 $$) & fi; exec " +
                          std::string(program()) + " " + train("run") + "--set train.steps=1000000 --quiet'");
  EXPECT_EQ(r.status, 128 + SIGKILL) << r.output;
  EXPECT_NE(r.output.find("[0] strata: error: "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("rank 1 ("), std::string::npos) << r.output;
  EXPECT_TRUE(io::find_latest_checkpoint(dir_ / "run").has_value());
}

}  // namespace
}  // namespace strata::cli
