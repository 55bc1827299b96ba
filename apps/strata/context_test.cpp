// strata train where ranks share the positions of each row, as its users start it.

#include "apps/strata/ranks_test_util.h"
#include "strata/train/estimate.h"

namespace strata::cli {
namespace {

class ContextRuns : public RanksTest {
 protected:
  // The run on `ranks` learns what the one in `one` did, within `near`.
  void expect_same(const std::string& one, const std::string& out, const std::string& more, int ranks,
                   double near = 1e-5) const {
    SCOPED_TRACE(more);
    const Result r = strata(on(ranks, out) + "--set " + more);
    ASSERT_EQ(r.status, 0) << r.output;
    const auto want = metrics(one), got = metrics(out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, near) << "step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 10 * near) << "step " << i + 1;
    }
    EXPECT_NEAR(got.back().valid_loss, want.back().valid_loss, near);
  }
};

TEST_F(ContextRuns, LossesAreThoseOfOneProcess) {
  const std::string llama = "model.family=llama model.heads=4 model.kv_heads=2 train.accumulate=2 train.steps=12 ";
  ASSERT_EQ(strata(train("one") + "--set train.steps=12").status, 0);
  ASSERT_EQ(strata(train("llama") + "--set " + llama).status, 0);
  expect_same("one", "ring", "train.steps=12 parallel.cp=2", 2);
  expect_same("one", "ulysses", "train.steps=12 parallel.cp=2 parallel.cp_kind=ulysses train.tile=24", 2);
  expect_same("llama", "both", llama + "parallel.cp=2 parallel.dp=2", 4);
  expect_same("llama", "four", llama + "parallel.cp=4 parallel.cp_kind=ulysses", 4);
}

TEST_F(ContextRuns, WithPartsOfParametersInEachRank) {
  ASSERT_EQ(strata(train("one") + "--set train.steps=12").status, 0);
  for (const std::string zero : {"1", "2", "3"})
    expect_same("one", "zero" + zero, "train.steps=12 parallel.cp=2 parallel.zero=" + zero, 2);
  expect_same("one", "four", "train.steps=12 parallel.cp=2 parallel.dp=2 parallel.zero=3", 4);
}

TEST_F(ContextRuns, ARunGoesOnInAnotherLayout) {
  const std::string constant = "train.schedule=constant ";
  ASSERT_EQ(strata(train("one") + "--set train.steps=30 " + constant).status, 0);
  ASSERT_EQ(strata(on(2, "run") + "--set train.steps=10 parallel.cp=2 " + constant).status, 0);
  const auto go_on = [&](const std::string& ranks, const std::string& more) {
    const Result r = strata(ranks + "train --resume --out " + (dir_ / "run") + " --set " + more);
    ASSERT_EQ(r.status, 0) << r.output;
  };
  const auto launch = [](int n) { return "launch -n " + std::to_string(n) + " -- " + std::string(program()) + " "; };
  go_on(launch(4), "train.steps=20 parallel.cp=4 parallel.cp_kind=ring parallel.zero=1");
  go_on(launch(2), "train.steps=25 parallel.cp=2 parallel.cp_kind=ulysses parallel.zero=0");
  go_on("", "train.steps=30 parallel.cp=1");
  const auto want = metrics("one"), got = metrics("run");
  ASSERT_EQ(got.size(), 30U);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5) << "step " << i + 1;
}

// Dropout draws other numbers for each part, the same in every run.
TEST_F(ContextRuns, DropoutIsTheSameAgain) {
  const std::string more = "--set train.steps=8 parallel.cp=2 model.dropout=0.1";
  ASSERT_EQ(strata(on(2, "a") + more).status, 0);
  ASSERT_EQ(strata(on(2, "b") + more).status, 0);
  EXPECT_EQ(weights("a"), weights("b"));
  ASSERT_EQ(strata(on(2, "plain") + "--set train.steps=8 parallel.cp=2").status, 0);
  EXPECT_NE(weights("a"), weights("plain"));
  EXPECT_NEAR(metrics("a").back().loss, metrics("plain").back().loss, 0.2);
}

TEST_F(ContextRuns, RefusesByName) {
  const auto refused = [&](const std::string& more, const std::string& piece) {
    const Result r = strata(on(2, "no") + "--set " + more);
    EXPECT_NE(r.status, 0) << more;
    EXPECT_NE(r.output.find(piece), std::string::npos) << r.output;
  };
  refused("parallel.cp=2 model.context=18", "18 positions cannot be shared out among 2 ranks: a multiple of 4");
  refused("parallel.cp=2 parallel.cp_kind=ulysses model.heads=1", "2 ranks do not share the heads of blocks.0");
  refused("parallel.cp=2 parallel.exact=2", "parallel.exact = 2 is not for parallel.cp = 2");
  refused("parallel.cp=4", "strata launch -n 4");
  const Result both = strata(on(4, "no") + "--set parallel.cp=2 parallel.tp=2");
  EXPECT_NE(both.output.find("parallel.cp and parallel.tp are not for one run"), std::string::npos) << both.output;
}

TEST_F(ContextRuns, EstimateKnowsARanksPart) {
  const std::vector<std::string> settings{"model.layers=2",    "model.dim=64",        "model.heads=4",
                                          "model.context=512", "train.batch=2",       "train.steps=4",
                                          "train.eval_every=0", "train.save_every=-1", "train.sample_tokens=0",
                                          "train.threads=1",   "parallel.cp=2"};
  std::string words = "--set";
  for (const std::string& s : settings) words += " " + s;
  for (const std::string kind : {"ring", "ulysses"}) {
    std::vector<std::string> all = settings;
    all.push_back("parallel.cp_kind=" + kind);
    const MemoryEstimate e = estimate_memory(parse_config("", "test", all));
    EXPECT_EQ(e.ranks, 2);
    EXPECT_GT(e.sends_activations, 0);
    const Result r = strata(on(2, kind) + words + " parallel.cp_kind=" + kind);
    ASSERT_EQ(r.status, 0) << r.output;
    const double peak = metrics(kind).back().peak_memory;
    EXPECT_LE(static_cast<double>(e.peak) / peak, 1.15) << e.peak << " and " << peak;
    EXPECT_GE(static_cast<double>(e.peak) / peak, 0.87) << e.peak << " and " << peak;
    std::printf("%s: said %lld bytes, %.0f at most\n", kind.c_str(), static_cast<long long>(e.peak), peak);
  }
  const Result told = strata("estimate --no-limits --set parallel.cp=2");
  ASSERT_EQ(told.status, 0) << told.output;
  EXPECT_NE(told.output.find("by one of 2 ranks in a step: parameters 0"), std::string::npos) << told.output;
  EXPECT_NE(told.output.find(", attention "), std::string::npos) << told.output;
}

}  // namespace
}  // namespace strata::cli
