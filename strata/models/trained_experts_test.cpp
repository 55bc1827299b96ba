// Language models with experts in training: what experts add to the loss goes through every way that a pass may take.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/models/language_model.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata {
namespace {

ModelConfig with_experts(const char* family) {
  ModelConfig c = tiny(family);
  c.layers = 3;
  c.experts = 4;
  c.ffn_dim = 12;
  c.shared_dim = 8;
  c.expert_capacity = 1;
  c.balance_loss = 0.3;
  c.z_loss = 0.2;
  return c;
}

std::shared_ptr<LanguageModel> made(const ModelConfig& c) {
  manual_seed(4);
  auto model = make_model(c);
  model->train();
  return model;
}

const Tensor kTokens = pattern(3, 8, 20, 0), kTargets = pattern(3, 8, 20, 1);

std::vector<std::vector<float>> gradients(const LanguageModel& m, const Tensor& loss) {
  for (Tensor p : m.parameters()) p.set_grad({});
  loss.backward();
  std::vector<std::vector<float>> all;
  for (const Tensor& p : m.parameters()) all.push_back(p.grad().to_vector<float>());
  return all;
}

class TrainedExperts : public testing::TestWithParam<const char*> {};

TEST_P(TrainedExperts, AddTheirLossesInTrainingAlone) {
  ModelConfig c = with_experts(GetParam());
  const auto model = made(c);
  c.balance_loss = c.z_loss = 0;
  const auto without = made(c);
  const double loss = model->loss(kTokens, kTargets).item(), bare = without->loss(kTokens, kTargets).item();
  // Three layers, whose loads are even or worse, and whose scores' exponentials add up to about 4.
  EXPECT_GT(loss, bare + 3 * (0.3 + 0.2 * 1.5));
  EXPECT_LT(loss, bare + 3 * (0.3 * 4 + 0.2 * 3));
  model->eval();
  without->eval();
  EXPECT_EQ(model->loss(kTokens, kTargets).item(), without->loss(kTokens, kTargets).item());
}

TEST_P(TrainedExperts, TheSameBitsWhenBlocksAreComputedAgainOrInPieces) {
  const auto model = made(with_experts(GetParam()));
  const Tensor once = model->loss(kTokens, kTargets);
  const auto want = gradients(*model, once);
  for (const int64_t again : {1, 3}) {
    model->set_recomputed_blocks(again);
    const Tensor loss = model->loss(kTokens, kTargets);
    EXPECT_EQ(loss.item(), once.item());
    EXPECT_TRUE(gradients(*model, loss) == want) << again;
  }
  model->set_recomputed_blocks(0);
  const LanguageModel::Rows rows{kTokens, kTargets};
  const nn::Residual first = model->pass_blocks(model->begin_pass(rows), rows, 0, 1);
  EXPECT_TRUE(first.loss.defined());
  const Tensor pieces = model->end_pass(model->pass_blocks(first, rows, 1, 3), rows);
  EXPECT_EQ(pieces.item(), once.item());
  EXPECT_TRUE(gradients(*model, pieces) == want);
}

TEST_P(TrainedExperts, PartsOfAPipelineGiveTheirLosses) {
  const auto model = made(with_experts(GetParam()));
  const Tensor whole = model->loss(kTokens, kTargets);
  const auto want = gradients(*model, whole);
  for (const bool halves : {false, true}) {
    Tensor first, last = whole;
    const Tensor x = model->part(kTokens, true, 0, 2, {}, halves, &first);
    const Tensor rest = model->part(x, false, 2, 3, kTargets, halves, &last);
    ASSERT_TRUE(first.defined());
    EXPECT_FALSE(last.defined());  // it is in the loss
    EXPECT_GT(first.item(), 2 * (0.3 + 0.2 * 1.5));
    EXPECT_NEAR((rest + first).item(), whole.item(), 2e-6);
    const auto got = gradients(*model, rest + first);
    for (size_t i = 0; i < want.size(); ++i)
      for (size_t k = 0; k < want[i].size(); ++k) EXPECT_NEAR(got[i][k], want[i][k], 2e-6) << i << ' ' << k;
  }
  model->eval();
  Tensor none = whole;
  model->part(kTokens, true, 0, 2, {}, false, &none);
  EXPECT_FALSE(none.defined());
}

TEST_P(TrainedExperts, PartsOfAPipelineThatWouldLoseTheirLossesAreRefused) {
  ModelConfig c = with_experts(GetParam());
  const auto model = made(c);
  EXPECT_NE(message<ValueError>([&] {
              model->part(kTokens, true, 0, 1);
            }).find("blocks 0 to 1 add their experts' balance_loss"),
            std::string::npos);
  EXPECT_EQ(model->part(kTokens, true, 0, 3, kTargets).item(), model->loss(kTokens, kTargets).item());
  c.balance_loss = c.z_loss = 0;
  EXPECT_EQ(made(c)->part(kTokens, true, 0, 1).shape(), Shape({3, 8, 32}));
}
INSTANTIATE_TEST_SUITE_P(All, TrainedExperts, testing::Values("gpt", "llama"));

TEST(TrainedExpertsOf, SettingsThatAreNoneAreRefused) {
  const auto said = [](auto change) {
    ModelConfig c = with_experts("gpt");
    change(c);
    return message<ValueError>([&] { model_spec(c); });
  };
  EXPECT_NE(said([](ModelConfig& c) { c.experts_per_token = 5; }).find("experts_per_token = 5"), std::string::npos);
  EXPECT_NE(said([](ModelConfig& c) { c.router = "tanh"; }).find("got 'tanh'"), std::string::npos);
  EXPECT_NE(said([](ModelConfig& c) { c.expert_overflow = "wait"; }).find("got 'wait'"), std::string::npos);
  EXPECT_NE(said([](ModelConfig& c) { c.experts = 0; }).find("want model.experts"), std::string::npos);
  EXPECT_NE(said([](ModelConfig& c) { c.balance_loss = -1; }).find("got -1"), std::string::npos);
  EXPECT_NE(to_string(model_spec(with_experts("gpt"))).find("capacity 1, balance loss 0.3, z loss 0.2"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
