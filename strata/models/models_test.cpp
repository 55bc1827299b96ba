#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/generate/sampling.h"
#include "strata/memory/allocator.h"
#include "strata/models/language_model.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, LossStartsNearUniformAndFalls) {
  manual_seed(1);
  const ModelConfig c = tiny(GetParam());
  const auto model = make_model(c);
  const Tensor x = pattern(3, 16, c.vocab, 0), y = pattern(3, 16, c.vocab, 1);
  const double first = model->loss(x, y).item();
  EXPECT_NEAR(first, std::log(20.0), 0.2);
  double last = first;
  for (int step = 0; step < 60; ++step) {
    model->zero_grad();
    Tensor loss = model->loss(x, y);
    loss.backward();
    last = loss.item();
    NoGrad guard;
    for (Tensor p : model->parameters()) {
      ASSERT_TRUE(p.grad().defined());
      p.add_(p.grad(), -0.5);
    }
  }
  EXPECT_LT(last, 0.5 * first);
}

// Weights are drawn once, by numbers that come after those which the model's parts would have drawn for theirs.
TEST_P(Family, DrawsItsWeightsOnce) {
  manual_seed(4);
  const auto model = make_model(tiny(GetParam()));
  const RngKey end = default_generator().state();
  uint64_t own = 0;
  Tensor first;
  for (const auto& [name, p] : model->named_parameters()) {
    if (p.dim() < 2) continue;
    if (!first.defined()) first = p;
    own += static_cast<uint64_t>((p.numel() + 3) / 4);
  }
  EXPECT_LT(own, end.offset);
  Generator g(4);
  g.next(end.offset - own);
  Tensor wanted = zeros(first.shape());
  nn::init::normal_(wanted, 0, 0.02, g);
  EXPECT_TRUE(equal(first, wanted));

  manual_seed(4);
  const nn::init::SkipDraws from_file;
  make_model(tiny(GetParam()));
  EXPECT_EQ(default_generator().state().offset, end.offset);
}

// Step by step with a cache, as in one pass.
TEST_P(Family, CacheGivesWhatOnePassGives) {
  manual_seed(2);
  const auto model = make_model(tiny(GetParam()));
  model->eval();
  NoGrad guard;
  const Tensor x = pattern(2, 16, 20, 0), all = model->forward(x);
  ModelCache cache = model->make_cache(2);
  for (const auto& [begin, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 1}, {6, 1}, {7, 9}}) {
    const Tensor logits = model->next_logits(x.narrow(1, begin, n), cache);
    EXPECT_TRUE(allclose(logits, all.select(1, begin + n - 1), 1e-4, 1e-5));
  }
  EXPECT_EQ(cache.length, 16);
  EXPECT_THROW(model->next_logits(x.narrow(1, 0, 1), cache), ShapeError);
  EXPECT_THROW(model->forward(pattern(1, 17, 20, 0)), ShapeError);
}

// A learned pattern is continued, past the end of the context too.
TEST_P(Family, LearnsATextByHeart) {
  manual_seed(3);
  const ModelConfig c = tiny(GetParam());
  const auto model = make_model(c);
  optim::AdamW optimizer(model->named_parameters(), {5e-3});
  for (int step = 0; step < 150; ++step) {
    optimizer.zero_grad();
    const Tensor loss = model->loss(pattern(4, 16, 20, step), pattern(4, 16, 20, step + 1));
    loss.backward();
    optimizer.step_clipped(1);
  }
  const std::vector<int64_t> wanted = pattern(1, 60, 20, 0).to_vector<int64_t>();
  TokenSampler sampler(model, {static_cast<int32_t>(wanted[0]), static_cast<int32_t>(wanted[1])}, {.temperature = 0});
  for (size_t i = 2; i < wanted.size(); ++i) ASSERT_EQ(sampler.next(), wanted[i]) << i;
}

TEST_P(Family, TiedWeights) {
  ModelConfig c = tiny(GetParam());
  const auto tied = make_model(c);
  c.tied_embeddings = false;
  const auto own = make_model(c);
  EXPECT_EQ(own->num_parameters(), tied->num_parameters() + 20 * 32);
  EXPECT_FALSE(tied->state_dict().contains("head.weight"));
  EXPECT_TRUE(own->state_dict().contains("head.weight"));
}

// Blocks that are computed again give the same gradients to the bit, dropout and autocast included, and leave less for
// backward.
TEST_P(Family, BlocksComputedAgain) {
  ModelConfig c = tiny(GetParam());
  c.layers = 3;
  const auto bits = [](const Tensor& t) { return t.detach().contiguous().to_vector<float>(); };
  for (const double dropout : {0.0, 0.2}) {
    for (const bool low : {false, true}) {
      c.dropout = dropout;
      std::vector<std::vector<float>> wanted;
      int64_t most = 0;
      for (const int64_t again : {0, 2, 3}) {
        manual_seed(7);
        const auto model = make_model(c);
        model->train();
        model->set_recomputed_blocks(again);
        const Tensor tokens = pattern(4, 16, 20, 0), targets = pattern(4, 16, 20, 1);
        manual_seed(8);
        std::vector<std::vector<float>> found;
        {
          std::optional<AutocastScope> autocast;
          if (low) autocast.emplace(DType::bf16);
          const Tensor loss = model->loss(tokens, targets);
          found.push_back(bits(loss));
          const int64_t held = memory::stats(Device::cpu()).live[static_cast<int>(memory::Tag::activation)];
          if (again == 0)
            most = held;
          else
            EXPECT_LT(held, most);
          loss.backward();
        }
        for (const Tensor& p : model->parameters()) found.push_back(bits(p.grad()));
        if (again == 0) wanted = found;
        EXPECT_EQ(found, wanted) << again << " blocks, dropout " << dropout << ", low " << low;
      }
    }
  }
  const auto model = make_model(c);
  EXPECT_THROW(model->set_recomputed_blocks(4), ValueError);
  EXPECT_THROW(model->set_recomputed_blocks(-1), ValueError);
}

TEST_P(Family, DryRun) {
  DeviceScope dry(Device::meta());
  ModelConfig c = tiny(GetParam());
  c.dim = 4096;
  c.layers = 40;
  c.vocab = 50000;
  const auto model = make_model(c);
  EXPECT_GT(model->num_parameters(), 5'000'000'000);
  const Tensor tokens = empty({{1, 16}, DType::i64, Device::meta(), std::nullopt});
  Tensor loss = model->loss(tokens, tokens);
  EXPECT_EQ(loss.shape(), Shape({}));
  loss.backward();
  EXPECT_TRUE(model->token_embedding.weight.grad().defined());
}

TEST(Sampling, TopKTopPTemperature) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f), NAN};
  const auto counts = [&](const SampleOptions& o) {
    std::vector<int> n(5);
    for (uint64_t i = 0; i < 4000; ++i) ++n[static_cast<size_t>(sample_token(logits, o, i))];
    return n;
  };
  const auto all = counts({});
  EXPECT_NEAR(all[0], 2000, 150);
  EXPECT_NEAR(all[3], 200, 60);
  EXPECT_EQ(all[4], 0);
  const auto k = counts({.top_k = 2});
  EXPECT_NEAR(k[0], 2500, 150);
  EXPECT_EQ(k[2] + k[3], 0);
  const auto p = counts({.top_p = 0.75});
  EXPECT_EQ(p[2] + p[3], 0);
  EXPECT_NEAR(p[0], 2500, 150);
  EXPECT_EQ(counts({.top_p = 0.4})[0], 4000);
  EXPECT_EQ(counts({.temperature = 0})[0], 4000);
  EXPECT_NEAR(counts({.vocab = 2})[0], 2500, 150);
  EXPECT_EQ(counts({.vocab = 2})[2], 0);
  EXPECT_EQ(counts({.vocab = 100}), all);
  const auto cold = counts({.temperature = 0.5});  // weights 0.25, 0.09, 0.0225, 0.0025
  EXPECT_NEAR(cold[0], 4000 * 0.25 / 0.365, 150);
  EXPECT_EQ(all, counts({}));
  EXPECT_NE(all, counts({.seed = 1}));
}

TEST(Sampling, Refusals) {
  const std::vector<float> logits{1, 2};
  EXPECT_THROW(sample_token({}, {}, 0), ValueError);
  EXPECT_THROW(sample_token(logits, {.temperature = -1}, 0), ValueError);
  EXPECT_THROW(sample_token(logits, {.top_k = -1}, 0), ValueError);
  EXPECT_THROW(sample_token(logits, {.top_p = 0}, 0), ValueError);
  EXPECT_THROW(sample_token(logits, {.vocab = -1}, 0), ValueError);
  EXPECT_THROW(sample_token(std::vector<float>{NAN}, {}, 0), ValueError);
  const float inf = INFINITY;
  EXPECT_EQ(sample_token(std::vector<float>{1, inf, -inf}, {}, 0), 1);
  EXPECT_THROW(TokenSampler(make_model(tiny("gpt")), {}), ValueError);
  EXPECT_THROW(TokenSampler(make_model(tiny("gpt")), {20}), IndexError);
  ModelConfig c = tiny("gpt");
  c.vocab = 0;
  EXPECT_THROW(make_model(c), ValueError);
  c = tiny("mamba");
  EXPECT_THROW(make_model(c), ValueError);
}

}  // namespace
INSTANTIATE_TEST_SUITE_P(Models, Family, testing::Values("gpt", "llama"));
}  // namespace strata
