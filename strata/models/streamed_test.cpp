// Language models whose parameters live on the host's disk tier.
#include "strata/nn/streamed.h"

#include <optional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/rng.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {
using memory::kDisk;
using Bits = std::vector<uint8_t>;

Bits bits_of(const Tensor& t) {
  const Pin pin(t, Access::read);
  return bits(t);
}

struct Way {
  nn::StreamOptions options;
  bool streams = false;
  bool low = false;
  bool made_there = false;   // the model never is on the device as a whole
  bool checkpoints = false;  // the model computes its blocks again by itself
};
std::vector<Bits> train(const ModelConfig& config, const Way& run, std::string* report = nullptr) {
  manual_seed(7);
  const auto model = [&] {
    const memory::TierScope there(run.made_there ? kDisk : Tier());
    return make_model(config);
  }();
  if (run.checkpoints) model->set_recomputed_blocks(config.layers);
  const Tensor x = stepping_tokens(3, 16, 5, config.vocab), y = stepping_tokens(3, 16, 7, config.vocab);
  std::optional<nn::Streamed> streamed;
  if (run.streams) streamed.emplace(*model, run.options);
  optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-2});
  std::vector<Bits> all;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < 2; ++pass) {
      std::optional<nn::StreamScope> scope;
      if (streamed) scope.emplace(*streamed);
      const AutocastScope low(DType::bf16, run.low);
      const Tensor loss = model->loss(x, y);
      loss.backward();
      all.push_back(bits(loss));
    }
    for (const auto& [name, p] : model->named_parameters()) all.push_back(bits_of(p.grad()));
    optimizer.step();
  }
  for (const auto& [name, p] : model->named_parameters()) all.push_back(bits_of(p));
  if (report) *report = streamed->report();
  return all;
}

TEST(StreamedModels, TrainToTheSameBits) {
  for (const std::string_view family : {"gpt", "llama"})
    for (const bool tied : {true, false})
      for (const bool low : {false, true}) {
        ModelConfig c = small_model(family, 3, 16, 61);
        c.tied_embeddings = tied;
        c.dropout = 0.1;
        const auto wanted = train(c, {.low = low});
        std::string report;
        EXPECT_EQ(train(c, {{.tier = kDisk, .inputs = kDisk}, true, low}, &report), wanted) << family << tied << low;
        EXPECT_EQ(train(c, {{.tier = kDisk, .recompute = false}, true, low}), wanted) << family << tied << low;
        EXPECT_NE(report.find("blocks.2: "), std::string::npos) << report;
        EXPECT_NE(report.find(" 0 of them unforeseen"), std::string::npos) << report;
        EXPECT_EQ(report.find("2 times in a forward") != std::string::npos, tied) << report;
      }
}

TEST(StreamedModels, AModelThatIsMadeAtItsHome) {
  for (const std::string_view family : {"gpt", "llama"}) {
    const ModelConfig c = small_model(family, 3, 16, 61);
    const auto wanted = train(c, {});
    EXPECT_EQ(train(c, {{.tier = kDisk}, true, false, true}), wanted) << family;
  }
}

TEST(StreamedModels, AModelThatCheckpointsItself) {
  for (const bool low : {false, true}) {
    const ModelConfig c = small_model("llama", 3, 16, 61);
    const auto wanted = train(c, {.low = low});
    Way run{{.tier = kDisk, .recompute = false}, true, low};
    run.checkpoints = true;
    std::string report;
    EXPECT_EQ(train(c, run, &report), wanted) << low;
    EXPECT_NE(report.find(" 0 of them unforeseen"), std::string::npos) << report;
    run.options.recompute = true;  // twice: of no use, and no harm
    EXPECT_EQ(train(c, run), wanted) << low;
  }
}

TEST(StreamedModels, GenerationIsTheSame) {
  const ModelConfig c = small_model("llama", 4, 32, 61);
  manual_seed(7);
  const auto model = make_model(c);
  const Tensor x = stepping_tokens(2, 8, 5, c.vocab);
  const auto generate = [&](nn::Streamed* streamed) {
    std::vector<Bits> all;
    ModelCache cache = model->make_cache(2);
    for (int i = 0; i < 3; ++i) {
      const NoGrad guard;
      std::optional<nn::StreamScope> scope;
      if (streamed) scope.emplace(*streamed);
      all.push_back(bits(model->next_logits(x, cache)));
    }
    return all;
  };
  const auto wanted = generate(nullptr);
  nn::Streamed streamed(*model, {.tier = kDisk});
  EXPECT_EQ(generate(&streamed), wanted);
  EXPECT_EQ(streamed.stats().unforeseen, 0);
}

// The host's bytes at most beside those that were there, in a step after the first; and the largest part's bytes.
std::pair<int64_t, int64_t> peak_of(int64_t layers) {
  ModelConfig c = small_model("llama", layers, 32, 40);
  c.dim = 128;
  c.tied_embeddings = false;
  const auto model = make_model(c);
  nn::Streamed streamed(*model, {.tier = kDisk, .inputs = kDisk});
  int64_t part = 0;
  for (const nn::StreamedPart& p : streamed.parts()) part = std::max(part, p.bytes);
  const Tensor x = stepping_tokens(8, 32, 5, c.vocab);
  // Two parts, a gradient and what comes into a part.
  memory::set_near_limit(streamed.near_bytes() + 2 * part, Device::cpu(), kDisk);
  int64_t peak = 0;
  for (int step = 0; step < 2; ++step) {
    for (Tensor p : model->parameters()) p.set_grad({});
    memory::backend(Device::cpu(), kDisk).release_cached();
    const int64_t before = memory::stats(Device::cpu()).live_total;
    memory::reset_peak(Device::cpu());
    const nn::StreamScope scope(streamed);
    model->loss(x, x).backward();
    peak = memory::stats(Device::cpu()).peak_total - before;
  }
  memory::set_near_limit(0, Device::cpu(), kDisk);
  return {peak, part};
}

TEST(StreamedModels, HorizonLmPeakDoesNotDependOnTheNumberOfLayers) {
  const auto [four, part] = peak_of(4);
  const auto [eight, part8] = peak_of(8);
  const auto [sixteen, part16] = peak_of(16);
  EXPECT_EQ(part, part16);
  EXPECT_NEAR(static_cast<double>(eight), static_cast<double>(four), static_cast<double>(part));
  EXPECT_NEAR(static_cast<double>(sixteen), static_cast<double>(four), static_cast<double>(part));
}

}  // namespace
}  // namespace strata
