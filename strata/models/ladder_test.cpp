// Ladder residuals: the formula, and that ranks compute the next half while a sum travels.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/generate/sampling.h"
#include "strata/models/tensor_parallel.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/nn/hooks.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

using distributed::Mesh;

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
void expect_near(const Tensor& got, const Tensor& want, double most, const std::string& what) {
  expect(got.shape() == want.shape(), what + ": " + got.to_string());
  const NoGrad guard;
  const double off = (got - want).abs().max().item();
  expect(off <= most, cat(what, " is off by ", off));
}
ModelConfig ladder(const char* family) {
  ModelConfig c = tiny(family, 21);
  c.layers = 3;
  c.heads = c.kv_heads = 4;
  c.residual = "ladder";
  return c;
}

TEST(Ladder, AHalfReadsAllButTheLastOnesSum) {
  for (const char* family : {"gpt", "llama"}) {
    manual_seed(5);
    const auto model = make_model(ladder(family));
    const Tensor tokens = pattern(2, 8, 21, 0);
    const NoGrad guard;
    nn::Places places;
    if (std::string(family) == "llama")
      places.turns.push_back(nn::RotaryTables(nn::RotarySpec{.dims = 8}).rows(0, 8, 8, model->token_embedding.weight));
    Tensor x = model->token_embedding(tokens), last;
    if (model->position_embedding) x = x + model->position_embedding->weight.narrow(0, 0, 8);
    // x without `last`, what the newest half added.
    const auto half = [&](const Tensor& added) {
      if (last.defined()) x = x + last;
      last = added;
    };
    for (const nn::TransformerBlock& b : model->blocks) {
      half(b.attn(b.norm1(x), places));
      half(b.mlp((*b.norm2)(x)));
    }
    expect_near(model->forward(tokens), model->logits((*model->norm)(x + last)), 1e-5, family);
    // It is another model than the plain one of the same weights.
    ModelConfig other = ladder(family);
    other.residual = "plain";
    const auto plain = make_model(other);
    plain->load_state_dict(model->state_dict());
    EXPECT_GT((plain->forward(tokens) - model->forward(tokens)).abs().max().item(), 1e-5);
  }
}

TEST(Ladder, GradientsAreThoseOfDifferences) {
  manual_seed(6);
  const auto model = make_model(ladder("llama"));
  model->to(DType::f64);
  const Tensor x = pattern(2, 8, 21, 0), y = pattern(2, 8, 21, 1);
  model->loss(x, y).backward();
  int compared = 0;
  for (const char* name : {"blocks.0.attn.out.weight", "blocks.0.mlp.down.weight", "blocks.1.norm1.weight",
                           "blocks.1.attn.qkv.weight", "blocks.2.mlp.gate_up.weight", "token_embedding.weight"})
    for (const auto& [own, p] : model->named_parameters()) {
      if (own != name) continue;
      const NoGrad guard;
      const Tensor direction = sin(arange(0, p.numel(), 1).to(DType::f64) * 1.3).view(p.shape()), before = p.clone();
      constexpr double kStep = 1e-5;
      double loss[2];
      for (const int sign : {0, 1}) {
        Tensor(p).copy_(before + direction * (sign == 0 ? -kStep : kStep));
        loss[sign] = model->loss(x, y).item();
      }
      Tensor(p).copy_(before);
      const double want = (loss[1] - loss[0]) / (2 * kStep), got = (p.grad() * direction).sum().item();
      EXPECT_NEAR(got, want, 1e-7 * (1 + std::abs(want))) << name;
      EXPECT_NE(got, 0) << name;
      ++compared;
    }
  EXPECT_EQ(compared, 6);
}

class LadderRanks : public testing::TestWithParam<std::tuple<const char*, int, bool>> {};

TEST_P(LadderRanks, LossGradientsAndTextAreThoseOfOneProcess) {
  const auto [family, ranks, sequence] = GetParam();
  manual_seed(7);
  const auto whole = make_model(ladder(family));
  const Tensor x = pattern(3, 8, 21, 0), y = pattern(3, 8, 21, 1);
  Tensor want = whole->loss(x, y);
  want.backward();
  std::map<std::string, Tensor> grads;
  for (const auto& [name, p] : whole->named_parameters()) grads[name] = p.grad();
  const auto written = [](const std::shared_ptr<LanguageModel>& model) {
    model->eval();
    TokenSampler sampler(model, {1, 2, 3}, {.temperature = 0});
    std::vector<int32_t> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(sampler.next());
    return ids;
  };
  const std::vector<int32_t> text = written(whole);
  distributed::run_as_ranks(Mesh(cat("tp=", ranks)), [&, ranks = ranks, sequence = sequence, family = family](int) {
    const auto own = [&] {
      const nn::init::SkipDraws copied;
      return make_model(ladder(family));
    }();
    own->load_state_dict(whole->state_dict());
    distributed::shard_module(*own, shard_plan(*own, ranks), "tp", {.sequence = sequence});
    for (const int64_t again : {0, 2}) {  // blocks that backward computes again
      own->set_recomputed_blocks(again);
      for (const auto& [name, p] : own->named_parameters()) Tensor(p).set_grad({});
      Tensor loss = own->loss(x, y);
      expect(std::abs(loss.item() - want.item()) < 2e-6, cat("loss ", loss.item(), ", wanted ", want.item()));
      loss.backward();
      for (const auto& [name, p] : own->named_parameters())
        expect_near(distributed::full_tensor(p.grad()), grads.at(name), 4e-6, "the gradient of " + name);
    }
    expect(written(own) == text, "the same tokens");
  });
}
INSTANTIATE_TEST_SUITE_P(Models, LadderRanks,
                         testing::Combine(testing::Values("gpt", "llama"), testing::Values(2, 4), testing::Bool()));

// Rank 1 begins with attention only when rank 0 has come to the feed-forward part, which in a plain model needs the sum
// of both ranks' attention.
TEST(Ladder, TheNextHalfBeginsBeforeTheSumIsThere) {
  for (const bool sequence : {false, true}) {
    std::atomic<bool> further{false};
    distributed::run_as_ranks(Mesh("tp=2"), [&](int rank) {
      manual_seed(8);
      const auto own = make_model(ladder("llama"));
      distributed::shard_module(*own, shard_plan(*own, 2), "tp", {.sequence = sequence});
      const nn::TransformerBlock& block = own->blocks[1];
      if (rank == 0)
        nn::register_forward_pre_hook(block.mlp, [&](const nn::Module&, const Tensor&) { further = true; });
      else
        nn::register_forward_pre_hook(block.attn.out, [&](const nn::Module&, const Tensor&) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
          while (!further && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          expect(further, "rank 0 waits for a sum before its feed-forward part");
        });
      const NoGrad guard;
      (void)own->hidden(pattern(2, 8, 21, 0));
    });
    EXPECT_TRUE(further);
  }
}

TEST(Ladder, WhatHasNoneIsNamed) {
  ModelConfig c = ladder("gpt");
  c.residual = "stairs";
  EXPECT_EQ(message<ValueError>([&] { make_model(c); }), "make_model: model.residual is plain or ladder, got 'stairs'");
  const auto model = make_model(ladder("gpt"));
  EXPECT_EQ(message<ValueError>([&] { model->part(pattern(2, 8, 21, 0), true, 0, 1); }),
            "LanguageModel: a part of a ladder would need what its last half added beside x: it has no parts");
  ModelSpec spec = model_spec(ladder("gpt"));
  spec.kind = ModelKind::encoder;
  EXPECT_EQ(message<ValueError>([&] { check_spec(spec); }),
            "ModelSpec: a ladder's layers are a decoder's, and the first is one of them");
  EXPECT_NE(to_string(model_spec(ladder("gpt"))).find("norms ladder"), std::string::npos);
}

}  // namespace
}  // namespace strata
