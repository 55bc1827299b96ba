// Several texts in a row, texts' log-probabilities, and adapters of whole models.

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/lora.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata {
namespace {

Tensor row_of(const std::vector<int64_t>& v) {
  return from_span<int64_t>(v, {1, static_cast<int64_t>(v.size())});
}

// Texts of 3, 4 and 2 places, and one place left: row 0; row 1 is a single text.
TEST(PackedTexts, HaveTheLossAndGradientsThatTheyHaveAlone) {
  for (const std::string family : {"gpt", "llama"}) {
    manual_seed(1);
    const auto model = make_model(small_model(family, 2, 16, 20));
    const Tensor tokens = randint(0, 20, {2, 10}), next = randint(0, 20, {2, 10});
    const std::vector<std::pair<int64_t, int64_t>> texts{{0, 3}, {3, 4}, {7, 2}};
    std::vector<int64_t> positions{0, 1, 2, 0, 1, 2, 3, 0, 1, 0}, documents{0, 0, 0, 1, 1, 1, 1, 2, 2, 3};
    std::vector<int64_t> one(10), zero(10, 0);
    for (int64_t i = 0; i < 10; ++i) one[static_cast<size_t>(i)] = i;
    Tensor targets = next.clone();
    targets.narrow(0, 0, 1).narrow(1, 9, 1).fill_(-100);  // nothing stands there
    targets.narrow(0, 0, 1).narrow(1, 3, 2).fill_(-100);  // a question, which is not learned
    const Tensor p = cat({row_of(positions), row_of(one)}, 0), d = cat({row_of(documents), row_of(zero)}, 0);
    const Tensor packed = model->packed_loss(tokens, targets, p, d);
    packed.backward();
    nn::StateDict gradients;
    for (const auto& [name, t] : model->named_parameters()) gradients.emplace(name, t.grad().clone());
    model->zero_grad();

    Tensor total;
    double learned = 0;
    const auto alone = [&](int64_t row, int64_t begin, int64_t count) {
      const Tensor x = tokens.narrow(0, row, 1).narrow(1, begin, count);
      const Tensor y = targets.narrow(0, row, 1).narrow(1, begin, count);
      const Tensor sum = -model->log_probabilities(x, y).sum();
      total = total.defined() ? total + sum : sum;
      learned += (y != -100).to(DType::f32).sum().item();
    };
    for (const auto& [begin, count] : texts) alone(0, begin, count);
    alone(1, 0, 10);
    const Tensor mean = total / learned;
    EXPECT_NEAR(packed.item(), mean.item(), 1e-5) << family;
    mean.backward();
    for (const auto& [name, t] : model->named_parameters())
      EXPECT_LE((t.grad() - gradients.at(name)).abs().max().item(), 2e-6) << family << " " << name;
    EXPECT_THROW(model->packed_loss(tokens, targets, p, d.narrow(1, 0, 9)), ShapeError);
  }
}

TEST(LogProbabilities, AreThoseOfTheTargets) {
  manual_seed(2);
  const auto model = make_model(small_model("llama", 1, 16, 20));
  const Tensor tokens = randint(0, 20, {3, 6});
  Tensor targets = randint(0, 20, {3, 6});
  targets.narrow(1, 4, 2).fill_(-100);
  targets.narrow(0, 2, 1).fill_(-100);
  const Tensor logs = log_softmax(model->forward(tokens), 2);
  const std::vector<float> got = model->log_probabilities(tokens, targets).to_vector<float>();
  const std::vector<int64_t> ids = targets.contiguous().to_vector<int64_t>();
  ASSERT_EQ(got.size(), 3U);
  for (int64_t b = 0; b < 3; ++b) {
    double sum = 0;
    for (int64_t t = 0; t < 6; ++t)
      if (const int64_t id = ids[static_cast<size_t>(b * 6 + t)]; id >= 0)
        sum += logs.select(0, b).select(0, t).select(0, id).item();
    EXPECT_NEAR(got[static_cast<size_t>(b)], sum, 1e-4);
  }
  EXPECT_EQ(got[2], 0);
}

// Adapters of every map, the output layer's among them, count in logits, losses and generation alike, and a merged
// model gives the same.
TEST(AdaptedModels, AreTheSameMergedAndInEveryUse) {
  for (const std::string family : {"gpt", "llama"})
    for (const bool dora : {false, true}) {
      manual_seed(3);
      ModelConfig c = small_model(family, 2, 16, 20);
      c.tied_embeddings = false;
      const auto model = make_model(c);
      model->eval();
      const Tensor tokens = randint(0, 20, {2, 8}), targets = randint(0, 20, {2, 8});
      const NoGrad guard;
      const Tensor before = model->forward(tokens);
      const double loss = model->loss(tokens, targets).item();
      const size_t adapted = nn::add_lora(*model, {.rank = 4, .alpha = 8, .dora = dora, .targets = {}}).size();
      EXPECT_EQ(adapted, 9U) << family;  // four maps of a block, and the head
      EXPECT_LE((model->forward(tokens) - before).abs().max().item(), dora ? 1e-5 : 0) << family;
      for (auto& [name, p] : nn::lora_parameters(*model))
        if (name.ends_with(".B")) nn::init::normal_(p, 0, 0.05);
      const Tensor apart = model->forward(tokens);
      EXPECT_GT((apart - before).abs().max().item(), 0.01) << family;
      const double apart_loss = model->loss(tokens, targets).item();
      ModelCache cache = model->make_cache(2);
      const Tensor last = model->next_logits(tokens, cache);
      EXPECT_LE((last - apart.select(1, 7)).abs().max().item(), 1e-4) << family;
      {
        const nn::WithoutLora off;
        EXPECT_EQ((model->forward(tokens) - before).abs().max().item(), 0) << family;
        EXPECT_EQ(model->loss(tokens, targets).item(), loss) << family;
      }
      nn::merge_lora(*model);
      EXPECT_LE((model->forward(tokens) - apart).abs().max().item(), 1e-4) << family;
      EXPECT_NEAR(model->loss(tokens, targets).item(), apart_loss, 1e-5) << family;
    }
}

// A block that is computed again in backward computes its adapters again.
TEST(AdaptedModels, TrainWithRecomputedBlocksToTheSameBits) {
  const auto gradients = [](int64_t again) {
    manual_seed(4);
    const auto model = make_model(small_model("llama", 2, 16, 20));
    nn::add_lora(*model, {.rank = 4, .alpha = 8, .dropout = 0.1, .targets = {"qkv", "mlp"}});
    for (auto& [name, p] : nn::lora_parameters(*model))
      if (name.ends_with(".B")) nn::init::normal_(p, 0, 0.05);
    model->set_recomputed_blocks(again);
    const Tensor tokens = stepping_tokens(2, 8, 3, 20);
    model->loss(tokens, (tokens + 1) % Scalar(20)).backward();
    std::map<std::string, std::vector<uint8_t>> all;
    for (const auto& [name, p] : model->named_parameters())
      if (p.grad().defined()) all[name] = bits(p.grad());
    return all;
  };
  const auto plain = gradients(0);
  EXPECT_EQ(plain.size(), 12U);
  EXPECT_EQ(plain, gradients(2));
}

}  // namespace
}  // namespace strata
