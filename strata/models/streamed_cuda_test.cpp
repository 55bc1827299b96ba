// Language models on a card whose parameters live in page-locked memory or on a disk.
#include <optional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/streamed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {
using memory::kDisk;
using Bits = std::vector<uint8_t>;

class StreamedOnACard : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  void TearDown() override {
    if (cuda::device_count() > 0) memory::set_near_limit(0, card_, GetParam());
  }
  static Bits bits_of(const Tensor& t) { return bits(t.to(Device::cpu())); }
  // Room for the parts near, a gradient and what comes into a part, each in whole pages.
  int64_t limit(const nn::Streamed& streamed) {
    int64_t part = 0;
    for (const nn::StreamedPart& p : streamed.parts()) part = std::max(part, p.bytes);
    return streamed.near_bytes() + 2 * part + (int64_t{1} << 18);
  }

  const Device card_ = Device::cuda();
};

INSTANTIATE_TEST_SUITE_P(Tiers, StreamedOnACard, ::testing::Values(Tier::pinned, kDisk),
                         [](const auto& info) { return std::string(info.param.name()); });

TEST_P(StreamedOnACard, TrainsToTheSameBits) {
  for (const bool low : {false, true}) {
    const auto train = [&](std::optional<nn::StreamOptions> options) {
      const DeviceScope on(card_);
      manual_seed(7);
      ModelConfig c = small_model("llama", 4, 64, 300);
      c.dim = 128;
      c.dropout = 0.1;
      const auto model = make_model(c);
      if (!low) model->to(DType::bf16);
      const Tensor x = stepping_tokens(4, 64, 5, c.vocab).to(card_), y = stepping_tokens(4, 64, 7, c.vocab).to(card_);
      std::optional<nn::Streamed> streamed;
      if (options) streamed.emplace(*model, *options);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-2});
      std::vector<Bits> all;
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        {
          if (streamed) memory::set_near_limit(limit(*streamed), card_, GetParam());
          std::optional<nn::StreamScope> scope;
          if (streamed) scope.emplace(*streamed);
          const AutocastScope autocast(DType::bf16, low);
          const Tensor loss = model->loss(x, y);
          loss.backward();
          all.push_back(bits_of(loss));
        }
        memory::set_near_limit(0, card_, GetParam());
        for (const auto& [name, p] : model->named_parameters()) all.push_back(bits_of(p.grad()));
        const NoGrad guard;
        if (low) {
          for (auto& [name, p] : model->named_parameters()) Tensor(p).sub_(p.grad() * 0.01);
        } else {
          optimizer.step();
        }
      }
      for (const auto& [name, p] : model->named_parameters()) all.push_back(bits_of(p));
      if (streamed) {
        EXPECT_EQ(streamed->stats().unforeseen, 0) << streamed->report();
        EXPECT_GT(streamed->stats().bytes_ahead, 0);
      }
      return all;
    };
    const auto wanted = train({});
    EXPECT_EQ(train(nn::StreamOptions{.tier = GetParam()}), wanted) << low;
    EXPECT_EQ(train(nn::StreamOptions{.tier = GetParam(), .inputs = GetParam()}), wanted) << low;
    EXPECT_EQ(train(nn::StreamOptions{.tier = GetParam(), .parts_near = 3, .recompute = false}), wanted) << low;
  }
}

TEST_P(StreamedOnACard, HorizonLmPeakDoesNotDependOnTheNumberOfLayers) {
  const DeviceScope on(card_);
  int64_t part = 0;
  const auto peak_of = [&](int64_t layers) {
    ModelConfig c = small_model("llama", layers, 128, 64);
    c.dim = 512;
    c.tied_embeddings = false;
    const auto model = make_model(c);
    model->to(DType::bf16);
    nn::Streamed streamed(*model, {.tier = GetParam(), .inputs = GetParam()});
    for (const nn::StreamedPart& p : streamed.parts()) part = std::max(part, p.bytes);
    const Tensor x = stepping_tokens(4, 128, 5, c.vocab).to(card_);
    memory::set_near_limit(limit(streamed), card_, GetParam());
    int64_t peak = 0;
    for (int step = 0; step < 3; ++step) {
      for (Tensor p : model->parameters()) p.set_grad({});
      memory::backend(card_, GetParam()).release_cached();
      cuda::synchronize();
      const int64_t before = memory::stats(card_).live_total;
      memory::reset_peak(card_);
      const nn::StreamScope scope(streamed);
      model->loss(x, x).backward();
      peak = memory::stats(card_).peak_total - before;
    }
    return static_cast<double>(peak);
  };
  const double four = peak_of(4), eight = peak_of(8), sixteen = peak_of(16);
  EXPECT_NEAR(eight, four, static_cast<double>(part));
  EXPECT_NEAR(sixteen, four, static_cast<double>(part));
}

}  // namespace
}  // namespace strata
