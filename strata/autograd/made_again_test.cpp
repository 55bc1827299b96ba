// The ways to make saved tensors again, checkpoint(), Recompute, an offload's recipes and MadeAgain, beside each other:
// the same bits, and each runs again what it says.
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "strata/autograd/checkpoint.h"
#include "strata/autograd/made_again.h"
#include "strata/autograd/offload.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/autograd/recompute.h"
#include "strata/core/autocast.h"
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

// A gated part: what `down` reads is made of `both`.
Tensor gated(const Tensor& x, const Tensor& up, const Tensor& down, bool again) {
  const auto gate = [](const Tensor& t) { return swiglu(t); };
  const Tensor both = linear(x, up), inner = gate(both);
  std::optional<MadeAgain> not_kept;
  if (again) not_kept.emplace(inner, gate, both);
  return linear(inner, down);
}

// x [B, T, D]: a product keeps its rows in another shape. With retained graphs it is made once for each pass.
TEST(MadeAgain, OneTensorIsMadeByItsFunction) {
  constexpr int64_t kWidth = 96;
  const TensorList leaves = {leaf({2, 32, 40}), leaf({2 * kWidth, 40}, 2), leaf({40, kWidth}, 3)};
  for (const bool low : {false, true}) {
    SCOPED_TRACE(low);
    std::vector<std::string> want;
    const AutocastScope low_weights(DType::bf16, low);  // their copies are there before
    sum(gated(leaves[0], leaves[1], leaves[2], false)).backward();
    int64_t kept[2];
    for (const bool again : {false, true}) {
      for (Tensor t : leaves) t.set_grad({});
      const int64_t before = live();
      const Tensor loss = sum(gated(leaves[0], leaves[1], leaves[2], again) * 0.5);
      kept[again] = live() - before;
      const Recording r = record([&] { loss.backward({}, true); });
      int made = 0;
      for (const RecordedCall& c : r.calls) made += c.op->name() == "swiglu_packed";
      EXPECT_EQ(made, again ? 1 : 0);
      std::vector<std::string> got;
      for (const Tensor& t : leaves) got.push_back(bits(t.grad()));
      for (Tensor t : leaves) t.set_grad({});
      loss.backward();
      for (const Tensor& t : leaves) got.push_back(bits(t.grad()));
      if (!again) want = got;
      EXPECT_EQ(got, want);
    }
    EXPECT_EQ(kept[0] - kept[1], 2 * 32 * kWidth * (low ? 2 : 4));  // whole pages
  }
}

TEST(MadeAgain, OneTensorOfWhatWasOverwrittenIsAnError) {
  const Tensor x = leaf({8, 16}), w = leaf({4, 16}, 2);
  const Tensor from = x * 2.0, made = exp(from);
  Tensor y;
  {
    const MadeAgain again(
        made, [](const Tensor& t) { return exp(t); }, from);
    y = linear(made, w);
  }
  Tensor(from.detach()).add_(Scalar(1));
  EXPECT_THROW(sum(y).backward(), AutogradError);
}

// Other hooks decide, and without gradients nothing is saved.
TEST(MadeAgain, OneTensorIsLeftToOtherHooks) {
  const TensorList leaves = {leaf({6, 40}), leaf({192, 40}, 2), leaf({40, 96}, 3)};
  std::vector<std::string> want;
  for (const bool within : {false, true}) {
    for (Tensor t : leaves) t.set_grad({});
    const auto part = [&](const Tensor& x) { return gated(x, leaves[1], leaves[2], within); };
    sum(within ? checkpoint(part, leaves[0]) : part(leaves[0])).backward();
    std::vector<std::string> got;
    for (const Tensor& t : leaves) got.push_back(bits(t.grad()));
    if (!within) want = got;
    EXPECT_EQ(got, want);
  }
  const NoGrad guard;
  EXPECT_EQ(bits(gated(leaves[0], leaves[1], leaves[2], true)), bits(gated(leaves[0], leaves[1], leaves[2], false)));
}

}  // namespace
}  // namespace strata
