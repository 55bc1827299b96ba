// Saved tensors that a call makes again: from the same bytes, by the same kernel, with the same draws.
#include "strata/autograd/offload.h"

#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/hooks.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/autograd/recompute.h"
#include "strata/core/autocast.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// What a recorder sees: the calls that run again, and with which arguments.
TEST(Offload, CheapCallsRunAgainFromWhatIsSavedBesides) {
  Tensor x = leaf({256, 256}), w = leaf({256, 256}, 2), v = leaf({8, 256}, 3);
  const auto loss = [](const TensorList& p) {
    const Tensor pair = linear(p[0], p[1]);            // dear enough to be stored
    return sum(linear(silu(pair) * 2.0, p[2]) * 1.5);  // silu saves pair; the product is saved by linear
  };
  const auto offload = SavedTensorOffload::create(all_again());
  const std::vector<std::string> want = gradients(loss, {x, w, v}, nullptr);
  const Recording r = record([&] { EXPECT_EQ(gradients(loss, {x, w, v}, offload), want); });
  int silus = 0;
  for (const RecordedCall& c : r.calls) silus += c.op->name() == "silu";
  EXPECT_EQ(silus, 2);
  EXPECT_EQ(offload->stats().recomputed, 256 * 256 * 4);
}

TEST(Offload, CallsRunAgainAndNothingLeaves) {
  const TensorList leaves = mlp_leaves();
  const std::vector<std::string> want = gradients(mlp, leaves, nullptr);
  OffloadOptions o = all_again();
  o.away = SavedPlace::keep;
  for (const bool adaptive : {false, true}) {
    o.adaptive = adaptive;
    o.most_kept = adaptive ? 1 : 0;
    const auto offload = SavedTensorOffload::create(o);
    for (int pass = 0; pass < 5; ++pass) EXPECT_EQ(gradients(mlp, leaves, offload), want) << adaptive << pass;
    const OffloadStats s = offload->stats();
    EXPECT_GT(s.recomputed, 0);
    EXPECT_GT(s.kept, 0);
    EXPECT_EQ(s.sent + s.fetched + s.host_bytes, 0);
    EXPECT_THROW(offload->set_plan(OffloadPlan::of({SavedPlace::host})), ValueError);
  }
}

// The weights' low copies are read where they are.
TEST(Offload, ProductsUnderAutocastRunAgain) {
  const TensorList leaves = {leaf({64, 32}), leaf({48, 32}, 2)};
  const auto loss = [](const TensorList& p) {
    const AutocastScope low(DType::bf16);
    return sum(to(sin(linear(p[0] * 1.0, p[1])), DType::f32));  // sin saves the product
  };
  OffloadOptions o = all_again();
  o.min_bytes = 1024;
  const auto offload = SavedTensorOffload::create(o);
  offload->set_plan(OffloadPlan::of({SavedPlace::host, SavedPlace::recompute}));
  const std::vector<std::string> want = gradients(loss, leaves, nullptr);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(gradients(loss, leaves, offload), want);
  EXPECT_EQ(offload->stats().recomputed, 2 * 64 * 48 * 2);
  const std::vector<SavedRecord> saved = offload->measured().saved;
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[1].reads, std::vector<int32_t>{0});
  EXPECT_GE(saved[1].cost.flops, 2.0 * 64 * 48 * 32);
}

TEST(Offload, RandomMasksAreDrawnAgain) {
  const TensorList leaves = {leaf({500}), leaf({500}, 2)};
  const auto loss = [](const TensorList& p) {
    const Tensor h = sin(p[0] * 1.0);         // p[0] * 1.0 is saved
    return sum(dropout(exp(h), 0.4) * p[1]);  // exp's result is saved, the product reads the dropped
  };
  manual_seed(3);
  const std::vector<std::string> want = gradients(loss, leaves, nullptr);
  manual_seed(3);
  const auto offload = SavedTensorOffload::create(all_again());
  EXPECT_EQ(gradients(loss, leaves, offload), want);
  EXPECT_GT(offload->stats().recomputed, 0);
}

// ---- within what others make again

TEST(Offload, CheckpointedBlocksInside) {
  const TensorList leaves = {leaf({12, 16}), leaf({16, 16}, 2), leaf({16, 16}, 3)};
  const Loss loss = [](const TensorList& p) {
    Tensor h = p[0] * 1.0;
    for (int i = 0; i < 3; ++i)
      h = checkpoint([&](const Tensor& t) { return dropout(gelu(matmul(gelu(matmul(t, p[1])), p[2])), 0.2); }, h);
    return sum(h);
  };
  expect_same_bits(loss, leaves);
  // The inputs of the blocks are all that is saved, and they go.
  const auto offload = SavedTensorOffload::create(all_away());
  (void)gradients(loss, leaves, offload);
  EXPECT_EQ(offload->stats().sent, 3 * 12 * 16 * 4);
}

TEST(Offload, StretchesInside) {
  const TensorList leaves = {leaf({12, 16}), leaf({16, 16}, 2), leaf({16, 16}, 3)};
  const Loss loss = [](const TensorList& p) {
    Recompute recompute;
    Tensor h = p[0] * 1.0;
    for (int i = 0; i < 3; ++i) {
      recompute.begin();
      h = dropout(gelu(matmul(gelu(matmul(h, p[1])), p[2])), 0.2) * h + h;
    }
    recompute.keep();
    return sum(h);
  };
  expect_same_bits(loss, leaves);
  // What comes into the stretches leaves, once, though calls of theirs save it too, and comes back once.
  const auto offload = SavedTensorOffload::create(all_away());
  (void)gradients(loss, leaves, offload);
  EXPECT_EQ(offload->stats().sent, 3 * 12 * 16 * 4);
  EXPECT_EQ(offload->stats().fetched, 3 * 12 * 16 * 4);
  EXPECT_EQ(offload->stats().away_bytes, 0);
}

// What stretches and checkpointed functions are made again from is brought ahead of the calls that are made again.
TEST(Offload, WhatIsMadeAgainHasItsInputsAhead) {
  for (const bool stretches : {false, true}) {
    SCOPED_TRACE(stretches ? "stretches" : "checkpoint");
    OffloadOptions o = all_away();
    o.fetch_bytes = 1 << 20;
    const auto offload = SavedTensorOffload::create(o);
    const TensorList leaves = {leaf({12, 16}), leaf({16, 16}, 2)};
    const auto block = [&](const Tensor& t) { return gelu(gelu(matmul(t, leaves[1]))); };
    std::vector<int64_t> fetched;
    const Loss loss = [&](const TensorList& p) {
      std::optional<Recompute> recompute;
      if (stretches) recompute.emplace();
      Tensor h = p[0] * 1.0;
      for (int i = 0; i < 3; ++i) {
        if (recompute) recompute->begin();
        h = stretches ? block(h) : checkpoint(block, h);
        register_hook(h, [&](const Tensor&) { fetched.push_back(offload->stats().fetched / (12 * 16 * 4)); });
      }
      return sum(h);
    };
    (void)gradients(loss, leaves, offload);
    ASSERT_EQ(fetched.size(), 3u);
    EXPECT_EQ(fetched[1], 3);  // the last block is done, the one before has not begun
  }
}

TEST(Offload, InsideOfACheckpoint) {
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({40});
  const auto loss = [&](const TensorList& p) {
    return checkpoint(
        [&](const Tensor& t) {
          const SavedTensorOffload::Scope scope(offload);
          return sum(sin(t * t));
        },
        p[0]);
  };
  EXPECT_EQ(gradients(loss, {x}, nullptr),
            gradients([](const TensorList& p) { return sum(sin(p[0] * p[0])); }, {x}, nullptr));
}

}  // namespace
}  // namespace strata
