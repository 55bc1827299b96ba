// Language models whose saved tensors go away or are computed again: losses and weights are those without.
#include "strata/autograd/offload.h"

#include <stdlib.h>

#include <array>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/rng.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk_store.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<uint8_t>> weights;
  friend bool operator==(const Trained&, const Trained&) = default;
};

// Some steps of two accumulated batches each.
Trained train(const ModelConfig& config, const std::shared_ptr<SavedTensorOffload>& offload, bool low) {
  manual_seed(11);
  const auto model = make_model(config);
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-2});
  const Tensor tokens = stepping_tokens(3, config.context, 7, config.vocab);
  const Tensor targets = stepping_tokens(3, config.context, 5, config.vocab);
  Trained run;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < 2; ++batch) {
      Tensor loss;
      {
        std::optional<SavedTensorOffload::Scope> scope;
        if (offload) scope.emplace(offload);
        std::optional<AutocastScope> autocast;
        if (low) autocast.emplace(DType::bf16);
        loss = model->loss(batch == 0 ? tokens : targets, batch == 0 ? targets : tokens);
      }
      run.losses.push_back(loss.item());
      loss.backward();
    }
    optimizer.step();
  }
  for (const Tensor& p : model->parameters()) run.weights.push_back(bits(p));
  return run;
}

OffloadOptions everything(bool recompute, bool adaptive) {
  return {.recompute = recompute,
          .min_bytes = 512,
          .keep_bytes = 4096,
          .queue_bytes = 8192,
          .fetch_bytes = 4096,
          .adaptive = adaptive,
          .slowdown = 1.3};
}

TEST(OffloadModels, LossesAndWeightsAreTheSameBits) {
  for (const char* family : {"gpt", "llama"}) {
    for (const bool low : {false, true}) {
      ModelConfig config = small_model(family, 3, 24, 61);
      config.dropout = 0.1;
      const Trained want = train(config, nullptr, low);
      for (const bool recompute : {false, true}) {
        for (const bool adaptive : {false, true}) {
          const auto offload = SavedTensorOffload::create(everything(recompute, adaptive));
          EXPECT_TRUE(train(config, offload, low) == want) << family << low << recompute << adaptive;
          const OffloadStats s = offload->stats();
          EXPECT_EQ(s.passes, 10);
          EXPECT_GT(s.sent, 0);
          EXPECT_EQ(s.recomputed > 0, recompute);
          EXPECT_EQ(s.refused, 0) << s.last_failure;
          EXPECT_EQ(s.away_bytes, 0);
          if (adaptive) {
            ASSERT_TRUE(offload->plan());
            EXPECT_EQ(offload->plan()->choices.size(), offload->measured().saved.size());
            EXPECT_GT(offload->measured().forward_seconds, 0);
            EXPECT_GT(offload->measured().backward_seconds, 0);
          }
        }
      }
    }
  }
}

// The same plan every time: what a planner gives, and what a captured step repeats.
TEST(OffloadModels, AnyPlanGivesTheSameBits) {
  const ModelConfig config = small_model("llama", 2, 24, 61);
  const Trained want = train(config, nullptr, true);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto offload = SavedTensorOffload::create(everything(true, false));
    OffloadPlan plan;
    for (uint64_t i = 0; i < 40; ++i) {
      const auto numbers = philox({seed, 0}, i);
      plan.choices.push_back({std::array{SavedPlace::keep, SavedPlace::host, SavedPlace::recompute}[numbers[0] % 3],
                              numbers[1] % 2 ? OffloadPlan::kNever : static_cast<int32_t>(i + numbers[2] % 9)});
    }
    offload->set_plan(plan);
    EXPECT_TRUE(train(config, offload, true) == want) << seed;
    EXPECT_EQ(offload->stats().away_bytes, 0);
  }
}

// A block's input is all that it saves, and it goes.
TEST(OffloadModels, CheckpointedBlocks) {
  const ModelConfig config = small_model("gpt", 4, 24, 61);
  manual_seed(3);
  const LanguageModel model(model_spec(config));
  const Tensor tokens = stepping_tokens(2, 24, 7, 61);
  const auto gradients = [&](const std::shared_ptr<SavedTensorOffload>& offload) {
    for (Tensor p : model.parameters()) p.set_grad({});
    Tensor loss;
    {
      std::optional<SavedTensorOffload::Scope> scope;
      if (offload) scope.emplace(offload);
      Tensor h = model.token_embedding(tokens) + model.position_embedding->weight.narrow(0, 0, 24);
      for (const auto& block : model.blocks) h = checkpoint([&](const Tensor& x) { return block.forward(x); }, h);
      loss = (*model.norm)(h).sum();
    }
    loss.backward();
    std::vector<std::vector<uint8_t>> all;
    for (const Tensor& p : model.parameters())
      if (p.grad().defined()) all.push_back(bits(p.grad()));
    return all;
  };
  const auto want = gradients(nullptr);
  OffloadOptions o = everything(false, false);
  o.keep_bytes = 0;
  const auto offload = SavedTensorOffload::create(o);
  EXPECT_EQ(gradients(offload), want);
  EXPECT_EQ(offload->stats().saved, 5 * 2 * 24 * 32 * 4);  // four blocks' inputs and the norm's
  EXPECT_GT(offload->stats().fetched, 0);
}

// Bytes of the host at most during a step of a model, above what is there before it.
double peak_of(const LanguageModel& model, const std::shared_ptr<SavedTensorOffload>& offload) {
  const Tensor tokens = stepping_tokens(8, 64, 7, 61), targets = stepping_tokens(8, 64, 5, 61);
  int64_t most = 0;
  for (int pass = 0; pass < 2; ++pass) {  // gradients are there in the second
    const int64_t before = memory::stats(DeviceType::cpu).live_total;
    memory::reset_peak(DeviceType::cpu);
    Tensor loss;
    {
      std::optional<SavedTensorOffload::Scope> scope;
      if (offload) scope.emplace(offload);
      loss = model.loss(tokens, targets);
    }
    loss.backward();
    most = memory::stats(DeviceType::cpu).peak_total - before;
  }
  return static_cast<double>(most);
}

TEST(OffloadModels, ThePeakOfSavedTensorsFalls) {
  manual_seed(3);
  const auto model = make_model(small_model("llama", 6, 64, 61));
  OffloadOptions o = everything(false, false);
  const double plain = peak_of(*model, nullptr);
  EXPECT_LT(peak_of(*model, SavedTensorOffload::create(o)), 0.6 * plain);
  o.recompute = true;
  o.keep_bytes = int64_t{1} << 30;  // nothing moves: what is computed again alone
  EXPECT_LT(peak_of(*model, SavedTensorOffload::create(o)), 0.85 * plain);
}

// SSDTrain (Wu et al., arXiv:2408.10013): activations on a disk, the same losses and weights, 40% less at the peak.
TEST(SsdTrain, SameLossesAndFortyPercentLess) {
  std::string path = testing::TempDir() + "strata_ssd_train_XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  {
    OffloadOptions o = everything(false, false);
    o.away = SavedPlace::disk;
    o.disk = std::make_shared<memory::DiskStore>(memory::DiskOptions{.directories = {path}});
    for (const char* family : {"gpt", "llama"}) {
      const ModelConfig config = small_model(family, 3, 24, 61);
      EXPECT_TRUE(train(config, SavedTensorOffload::create(o), true) == train(config, nullptr, true)) << family;
    }
    manual_seed(3);
    const auto model = make_model(small_model("llama", 6, 64, 61));
    const double plain = peak_of(*model, nullptr);
    EXPECT_LT(peak_of(*model, SavedTensorOffload::create(o)), 0.6 * plain);
    EXPECT_GT(o.disk->stats().bytes_read, 0);
    EXPECT_EQ(o.disk->bound().used, 0);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace strata
