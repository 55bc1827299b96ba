// Weights of recorded steps: which come by turns, which are read in place, and what copies in low precision add.

#include "strata/train/step_weights_inl.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "strata/train/estimate.h"

namespace strata {
namespace {

constexpr int64_t kDim = 64, kVocab = 256, kLayers = 3, kFfn = 128;
constexpr int64_t kTable = kVocab * kDim, kBlock = 4 * kDim * kDim + 3 * kDim * kFfn;

TrainConfig config_of(std::vector<std::string> more) {
  more.insert(more.begin(),
              {"model.family=llama", "model.layers=3", "model.dim=64", "model.heads=4", "model.ffn_dim=128",
               "model.vocab=256", "model.context=32", "train.batch=2", "train.device=cuda", "train.dtype=bf16"});
  return parse_config("", "test", more);
}
int64_t bytes_of(const Recording& r, const std::vector<int32_t>& storages) {
  int64_t n = 0;
  for (const int32_t s : storages) n += r.storages[static_cast<size_t>(s)].nbytes;
  return n;
}
// Whether a call of the step reads it, outside of the update.
bool is_read(const Recording& r, int32_t storage) {
  return std::ranges::any_of(r.calls, [&](const RecordedCall& c) {
    return c.phase != Phase::update && std::ranges::any_of(c.args, [&](const RecordedArg& a) {
             const auto* v = std::get_if<ValueIndex>(&a);
             return v && v->at >= 0 && r.values[static_cast<size_t>(v->at)].storage == storage;
           });
  });
}

TEST(StepWeights, CopiesComeAndTheTiedTableIsReadInPlace) {
  Recording r = record_dry_step(config_of({"model.tied_embeddings=true"})).step;
  const int64_t peak = r.peak_bytes().first;
  const StepWeights w = find_weights(r, true);
  const int64_t norms = (2 * kLayers + 1) * kDim * 4, copies = 2 * kLayers * kBlock, head = 2 * kTable;
  EXPECT_EQ(w.bytes, 4 * (kTable + kLayers * kBlock) + norms);
  EXPECT_EQ(w.copied, copies + head);
  EXPECT_EQ(bytes_of(r, w.by_turns), copies + head + norms);
  EXPECT_EQ(bytes_of(r, w.in_place), 4 * kTable);
  EXPECT_EQ(bytes_of(r, w.at_rest), 4 * kLayers * kBlock);
  EXPECT_FALSE(w.casts.empty());
  EXPECT_EQ(w.largest_turn, 2 * kBlock + 2 * kDim * 4);
  EXPECT_EQ(w.largest_head, head);
  EXPECT_EQ(w.largest, 4 * std::max(kTable, 2 * kDim * kFfn));
  for (const int32_t s : w.by_turns) EXPECT_TRUE(is_read(r, s)) << s;
  // A warm step converts nothing.
  for (const int32_t s : w.at_rest) EXPECT_FALSE(is_read(r, s)) << s;
  // Copies are there once, and the head's with them.
  EXPECT_LE(r.peak_bytes().first, peak + head);
}

TEST(StepWeights, WithoutRenewalTheyAreConvertedInEachStep) {
  Recording r = record_dry_step(config_of({"model.tied_embeddings=true"})).step;
  const size_t storages = r.storages.size();
  const StepWeights w = find_weights(r, false);
  EXPECT_EQ(r.storages.size(), storages);
  EXPECT_EQ(w.copied, 2 * kLayers * kBlock);
  EXPECT_EQ(bytes_of(r, w.in_place), 4 * (kTable + kLayers * kBlock));  // rows, the head's own cast, and casts
  EXPECT_TRUE(w.at_rest.empty());
}

TEST(StepWeights, WeightsInLowPrecisionComeThemselves) {
  Recording r = record_dry_step(config_of({"model.tied_embeddings=false", "train.param_dtype=bf16"})).step;
  const StepWeights w = find_weights(r, true);
  EXPECT_EQ(w.copied, 0);
  EXPECT_EQ(w.bytes, 2 * (2 * kTable + kLayers * kBlock) + (2 * kLayers + 1) * kDim * 4);  // norms stay in f32
  EXPECT_EQ(bytes_of(r, w.in_place), 2 * kTable);  // the head is read as a whole
  EXPECT_EQ(w.largest_head, 2 * kTable);
  EXPECT_TRUE(w.at_rest.empty());
  EXPECT_TRUE(w.casts.empty());
}

}  // namespace
}  // namespace strata
