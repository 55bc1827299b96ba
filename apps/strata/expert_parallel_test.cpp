// strata train of models with experts, on one rank and with experts shared among several.

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/strata/ranks_test_util.h"
#include "strata/train/config.h"
#include "strata/train/estimate.h"

namespace strata::cli {
namespace {

using Experts = RanksTest;

std::string settings(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& s : all) text += " --set " + s;
  return text + " ";
}

void expect_near(const std::vector<StepMetrics>& got, const std::vector<StepMetrics>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].loss, want[i].loss, 1e-3) << "step " << i + 1;
    EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-2 * want[i].grad_norm) << "step " << i + 1;
  }
  EXPECT_NEAR(got.back().valid_loss, want.back().valid_loss, 1e-3);
}

// Whatever the layout, what one process learns: all that come, or within capacities; through a stop, and on with the
// experts shared otherwise.
TEST_F(Experts, SharedAmongRanksLearnWhatOneProcessDoes) {
  const std::vector<std::string> all{"model.experts=4", "model.ffn_dim=32", "model.z_loss=0.001", "train.steps=20"};
  const std::string llama = settings(all) + settings({"model.family=llama", "model.shared_dim=16"});
  const std::string full = settings(all) + settings({"model.expert_capacity=1", "model.expert_overflow=reroute",
                                                     "model.router=sigmoid", "train.accumulate=2"});
  ASSERT_EQ(strata(train("one_llama") + llama).status, 0);
  ASSERT_EQ(strata(train("one_full") + full).status, 0);
  const auto want = metrics("one_llama"), want_full = metrics("one_full");
  EXPECT_LT(want.back().loss, want.front().loss - 0.5);

  Result r = strata(on(4, "full") + full + settings({"parallel.dp=4", "parallel.ep=4"}));
  ASSERT_EQ(r.status, 0) << r.output;
  expect_near(metrics("full"), want_full);

  // The same schedule, stopped half way: on with four parts of the experts, then with one.
  const std::string begun = train("parts") + llama + settings({"train.save_every=10", "train.max_seconds=0.001"});
  r = strata(std::string("launch -n 2 -- ") + program() + " " + begun + settings({"parallel.ep=2"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("has passed"), std::string::npos) << r.output;
  const std::string resume = "train --resume --out " + (dir_ / "parts") + " ";
  r = strata(std::string("launch -n 4 -- ") + program() + " " + resume +
             settings({"parallel.ep=4", "train.max_seconds=0.6"}));
  ASSERT_EQ(r.status, 0) << r.output;
  r = strata(resume + settings({"parallel.ep=1", "train.max_seconds=0"}));
  ASSERT_EQ(r.status, 0) << r.output;
  expect_near(metrics("parts"), want);
}

TEST_F(Experts, WhatTheirLayoutCannotDoIsRefusedByName) {
  const std::string experts = settings({"model.experts=4", "model.ffn_dim=32"});
  const auto said = [&](int ranks, const std::string& more) {
    const Result r = strata(on(ranks, "refused") + experts + more);
    EXPECT_NE(r.status, 0);
    return r.output;
  };
  const std::map<std::string, std::string> refused{
      {settings({"parallel.tp=2"}), "parallel.ep is 1, no multiple of it"},
      {settings({"parallel.ep=2", "parallel.exact=2"}), "parallel.ep and parallel.exact are not for one run"},
      {settings({"parallel.ep=2", "model.experts=3"}), "parallel.ep is 2, which does not divide model.experts = 3"},
      {settings({"parallel.ep=2", "model.experts=0"}), "the model has no experts"},
      {settings({"parallel.ep=4"}), "parallel.ep is 4, which does not divide the 2 ranks of parallel.dp"},
      {settings({"parallel.pp=2", "parallel.exact=2"}), "parallel.exact is for model.balance_loss = 0"},
      {settings({"parallel.cp=2", "model.expert_capacity=1"}), "model.expert_capacity counts whole sequences"},
      {settings({"parallel.ep=2", "model.expert_capacity=1", "'parallel.shares=3 1'"}), "wants the same"},
  };
  for (const auto& [more, text] : refused) EXPECT_NE(said(2, more).find(text), std::string::npos) << more;
  EXPECT_NE(strata(train("refused") + settings({"model.experts=2", "model.experts_per_token=3"}))
                .output.find("model.experts_per_token = 3 is more than model.experts = 2"),
            std::string::npos);
  EXPECT_NE(strata(train("refused") + settings({"model.expert_capacity=1"})).output.find("want model.experts"),
            std::string::npos);
}

// What a rank has is less by its share of the experts, and what it sends is told.
TEST_F(Experts, AreCountedInTheEstimate) {
  const std::vector<std::string> all{"model.layers=2",   "model.dim=64",    "model.heads=4",
                                     "model.context=32", "model.vocab=256", "model.experts=8",
                                     "model.ffn_dim=64", "train.batch=8",   "parallel.dp=4"};
  const auto of = [&](const std::string& more) {
    std::vector<std::string> set = all;
    set.push_back(more);
    return estimate_memory(load_config("", set));
  };
  const MemoryEstimate whole = of("parallel.ep=1"), part = of("parallel.ep=4");
  const int64_t experts = 2 * int64_t{8} * 3 * 64 * 64, dense = whole.parameter_count - experts;  // of two layers
  EXPECT_EQ(whole.parameters, 4 * whole.parameter_count);
  EXPECT_NEAR(static_cast<double>(part.parameters), 4.0 * static_cast<double>(dense + experts / 4), 8);
  EXPECT_NEAR(static_cast<double>(part.optimizer), 8.0 * static_cast<double>(dense + experts / 4),
              0.01 * static_cast<double>(part.optimizer));
  EXPECT_LT(part.peak, whole.peak);
  EXPECT_EQ(whole.sends_tokens, 0);
  // Two layers, four ways, of 2 rows of 32 tokens two choices each, three quarters of which go elsewhere.
  EXPECT_EQ(part.sends_tokens, 2 * 4 * (2 * 32 * 2) / 4 * 3 * 64 * 4);
  EXPECT_EQ(part.sends_gradients, 2 * 4 * dense / 4 * 3);  // those of experts are sums already
  const Result r = strata("estimate" + settings(all) + "--set parallel.ep=4");
  EXPECT_NE(r.output.find("rows that go to experts"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace strata::cli
