// Language models whose sequences lie in parts on ranks (threads here): losses and gradients are one process's.

#include "strata/dist/context_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/models/language_model.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

using distributed::ContextKind;
using distributed::ContextParallel;
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

template <class E, class F>
void says(const std::string& piece, F&& f) {
  const std::string text = message<E>(f);
  expect(text.find(piece) != text.npos, cat("no '", piece, "' in: ", text));
}

// What each of the ranks' parts give, put together, beside the model's own.
void expect_the_whole(const ModelSpec& spec, int ranks, ContextKind kind, int64_t recomputed = 0) {
  manual_seed(3);
  const LanguageModel whole(spec);
  const Tensor x = pattern(2, 16, spec.vocab, 0), y = pattern(2, 16, spec.vocab, 1);
  const Tensor loss = whole.loss(x, y);
  loss.backward();
  std::map<std::string, Tensor> want;
  for (const auto& [name, p] : whole.named_parameters()) want[name] = p.grad();
  Tensor logits;
  {
    const NoGrad guard;
    logits = whole.forward(x);
  }
  distributed::run_as_ranks(Mesh(cat("cp=", ranks)), [&](int) {
    const nn::init::SkipDraws copied;
    LanguageModel own(spec);
    own.load_state_dict(whole.state_dict());
    const ContextParallel cp{.kind = kind};
    own.set_context_parallel(cp);
    own.set_recomputed_blocks(recomputed);
    const Tensor own_x = distributed::context_part(x, 1, cp), own_y = distributed::context_part(y, 1, cp);
    const Tensor part = own.loss(own_x, own_y);
    part.backward();
    const double mean = distributed::all_reduce(part.detach(), "avg", "cp").item();
    expect(std::abs(mean - loss.item()) < 2e-6, cat("loss ", mean, ", wanted ", loss.item()));
    for (const auto& [name, p] : own.named_parameters())
      expect_near(distributed::all_reduce(p.grad(), "avg", "cp"), want.at(name), 1e-5, "the gradient of " + name);
    const NoGrad guard;
    expect_near(distributed::context_whole(own.forward(own_x), 1, cp), logits, 1e-5, "logits");
  });
}

class ContextParallelModel : public testing::TestWithParam<std::tuple<int, ContextKind>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  ContextKind kind() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ContextParallelModel,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(ContextKind::ring, ContextKind::ulysses)),
                         [](const auto& info) {
                           return cat(std::get<1>(info.param) == ContextKind::ring ? "Ring" : "Ulysses",
                                      std::get<0>(info.param));
                         });

TEST_P(ContextParallelModel, GptAndLlama) {
  for (const char* family : {"gpt", "llama"}) {
    expect_the_whole(model_spec(tiny(family, 21)), ranks(), kind());
    expect_the_whole(model_spec(tiny(family, 21)), ranks(), kind(), 2);
  }
}

// Windows, soft caps, norms of queries and keys, and frequencies that ask how long the whole text is.
TEST_P(ContextParallelModel, OtherBlocks) {
  ModelSpec spec = model_spec(tiny("llama", 21));
  spec.layers[0].attention.window = 5;
  spec.layers[0].attention.soft_cap = 2;
  spec.layers[1].attention.query_key_norm = nn::NormSpec{.kind = nn::NormSpec::Kind::rms};
  spec.rotary[0].scaling = nn::RotarySpec::Scaling::dynamic;
  spec.rotary[0].factor = 2;
  spec.rotary[0].context = 6;
  expect_the_whole(spec, ranks(), kind());
}

// Values of another size than keys, and turns of a part of them that all heads share.
TEST_P(ContextParallelModel, LatentAttention) {
  ModelSpec spec = model_spec(tiny("llama", 21));
  spec.rotary[0].dims = 4;
  for (nn::LayerSpec& layer : spec.layers) {
    layer.attention.kv_heads = layer.attention.heads;
    layer.attention.head_size = 12;
    layer.attention.latent = nn::LatentSpec{.kv_rank = 16, .rope_size = 4};
  }
  expect_the_whole(spec, ranks(), kind());
}

// Without any of it: of sharded tokens the rules put positions in parts through the whole model.
TEST(ContextParallelRules, RulesTakeShardedTokens) {
  manual_seed(3);
  const auto whole = make_model(tiny("gpt", 21));
  const Tensor x = pattern(2, 16, 21, 0), y = pattern(2, 16, 21, 1);
  const Tensor loss = whole->loss(x, y);
  loss.backward();
  std::map<std::string, Tensor> want;
  for (const auto& [name, p] : whole->named_parameters()) want[name] = p.grad();
  distributed::run_as_ranks(Mesh("cp=2"), [&](int) {
    const nn::init::SkipDraws copied;
    const auto own = make_model(tiny("gpt", 21));
    own->load_state_dict(whole->state_dict());
    const Tensor l = own->loss(distributed::distribute(x, "S(1)", "cp"), distributed::distribute(y, "S(1)", "cp"));
    l.backward();
    expect(std::abs(distributed::full_tensor(l).item() - loss.item()) < 2e-6, "loss");
    for (const auto& [name, p] : own->named_parameters())
      expect_near(distributed::full_tensor(p.grad()), want.at(name), 1e-5, "the gradient of " + name);
  });
}

TEST(ContextParallelRules, SaysWhatItDoesNotServe) {
  distributed::run_as_ranks(Mesh("cp=2"), [&](int) {
    const auto model = make_model(tiny("gpt", 21));
    model->set_context_parallel(ContextParallel{});
    const Tensor x = pattern(1, 4, 21, 0);
    says<ValueError>("padding", [&] { model->hidden(x, x == 3); });
    says<ValueError>("packed rows", [&] { model->packed_loss(x, x, x, x); });
    says<ShapeError>("24 tokens of all ranks do not fit the context of 16",
                     [&] { model->forward(pattern(1, 12, 21, 0)); });
    says<ShapeError>("a multiple of 4", [&] { model->forward(pattern(1, 3, 21, 0)); });
    model->set_context_parallel(std::nullopt);
    expect(model->forward(pattern(1, 3, 21, 0)).shape() == Shape({1, 3, 21}), "rows are whole again");
  });
}

}  // namespace
}  // namespace strata
