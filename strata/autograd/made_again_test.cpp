// The three ways to make saved tensors again, checkpoint(), Recompute and an offload's recipes, beside each other:
// the same bits, and each runs again what it says.
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "strata/autograd/checkpoint.h"
#include "strata/autograd/offload.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/autograd/recompute.h"
#include "strata/core/recording.h"
#include "strata/core/rng.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// Two blocks; within each, `tanh` is of what nothing saves, and its result is.
Tensor block(const Tensor& x, const Tensor& w) {
  return dropout(linear(silu(linear(x, w)) * 2.0, w), 0.3) + tanh(x + 1.0);
}

enum class Way { keep, checkpointed, stretches, recipes, both };

struct Ran {
  std::vector<std::string> gradients;
  std::map<std::string, int> again;  // calls of backward that forward made as well
};

Ran run(Way way) {
  const TensorList leaves = {leaf({64, 96}), leaf({96, 96}, 2)};
  manual_seed(4);
  Ran ran;
  const auto offload = way == Way::recipes || way == Way::both ? SavedTensorOffload::create(all_again()) : nullptr;
  const Recording r = record([&] {
    Tensor h = leaves[0];
    Tensor loss;
    {
      std::optional<SavedTensorOffload::Scope> saved;
      std::optional<Recompute> again;
      if (offload) saved.emplace(offload);
      if (way == Way::stretches || way == Way::both) again.emplace();
      for (int i = 0; i < 2; ++i) {
        // Both: the first block in a stretch, the second by recipes.
        if (way == Way::both && i == 1) again.reset();
        if (again) again->begin();
        h = way == Way::checkpointed ? checkpoint([&](const Tensor& x) { return block(x, leaves[1]); }, h)
                                     : block(h, leaves[1]);
      }
      if (again) again->keep();
      loss = sum(h * h);
    }
    loss.backward();
  });
  for (const Tensor& t : leaves) ran.gradients.push_back(bits(t.grad()));
  for (size_t i = 0; i < r.calls.size(); ++i)
    if (r.is_work(i) && r.calls[i].phase == Phase::backward) ++ran.again[std::string(r.calls[i].op->name())];
  return ran;
}

TEST(MadeAgain, EveryWayHasTheBitsOfWhatIsKept) {
  const Ran kept = run(Way::keep);
  EXPECT_EQ(kept.again.count("silu") + kept.again.count("tanh"), 0u);
  for (const Way way : {Way::checkpointed, Way::stretches, Way::recipes, Way::both}) {
    SCOPED_TRACE(static_cast<int>(way));
    EXPECT_EQ(run(way).gradients, kept.gradients);
  }
}

// A function and a stretch run again as a whole, once: every call that anything saved depends on. Recipes are of single
// saved tensors, and not of each.
TEST(MadeAgain, WhatRunsAgain) {
  const Ran kept = run(Way::keep), checkpointed = run(Way::checkpointed), stretches = run(Way::stretches),
            recipes = run(Way::recipes);
  const auto runs = [](const Ran& r, const char* op) {
    const auto found = r.again.find(op);
    return found == r.again.end() ? 0 : found->second;
  };
  for (const char* op : {"silu", "tanh"}) {
    SCOPED_TRACE(op);
    EXPECT_EQ(runs(kept, op), 0);
    EXPECT_EQ(runs(checkpointed, op), 2);
    EXPECT_EQ(runs(stretches, op), 2);
    EXPECT_LE(runs(recipes, op), 2);
  }
  EXPECT_GE(runs(recipes, "silu") + runs(recipes, "tanh"), 1);
}

}  // namespace
}  // namespace strata
