// LanguageModel::part: a model in parts is the model.
#include <gtest/gtest.h>

#include <optional>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/models/language_model.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

// With `halves` bit for bit, but for a tied table, whose two gradients are added here.
void expect_parts(ModelConfig c, const std::vector<int64_t>& cuts, bool halves = false, bool low = false) {
  SCOPED_TRACE(cat(c.family, c.tied_embeddings ? " tied" : "", halves ? " halves" : "", low ? " low" : ""));
  std::optional<AutocastScope> autocast;
  if (low) autocast.emplace(DType::bf16);
  c.vocab = 19;
  c.layers = 3;
  c.dim = 16;
  c.heads = 2;
  c.context = 8;
  manual_seed(3);
  const auto model = make_model(c);
  const Tensor tokens = randint(0, 19, {2, 8}), targets = randint(0, 19, {2, 8});
  const Tensor want = model->loss(tokens, targets);
  want.backward();
  std::vector<Tensor> grads;
  for (Tensor t : model->parameters()) {
    grads.push_back(t.grad());
    t.set_grad({});
  }
  std::vector<Tensor> ins, outs;
  Tensor x = tokens;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    ins.push_back(x);
    const bool last = i + 2 == cuts.size();
    outs.push_back(model->part(x, i == 0, cuts[i], cuts[i + 1], last ? targets : Tensor(), halves));
    if (halves && !last) {
      EXPECT_EQ(outs.back().shape(), (Shape{2, 2, 8, 16}));
    }
    x = outs.back().detach();
    if (!last) x.set_requires_grad();
  }
  EXPECT_NEAR(outs.back().item(), want.item(), halves ? 0 : 1e-6);
  Tensor g;
  for (size_t i = outs.size(); i-- > 0;) {
    backward({outs[i]}, {g});
    if (i > 0) g = ins[i].grad();
  }
  const TensorList all = model->parameters();
  const bool bits = halves && !c.tied_embeddings;
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_LE((all[i].grad() - grads[i]).abs().max().item(), bits ? 0 : 1e-6) << i << " of " << all.size();
}

TEST(Stages, PartsOfAModelAreTheModel) {
  for (const char* family : {"gpt", "llama"}) {
    for (const bool tied : {true, false}) {
      ModelConfig c;
      c.family = family;
      c.tied_embeddings = tied;
      expect_parts(c, {0, 3});
      expect_parts(c, {0, 1, 3});
      expect_parts(c, {0, 0, 2, 3, 3});  // embeddings alone, the head alone
      expect_parts(c, {0, 1, 3}, true);
      expect_parts(c, {0, 0, 2, 3, 3}, true);
      if (!tied) expect_parts(c, {0, 0, 2, 3, 3}, true, true);
    }
  }
}

TEST(Stages, WrongPartsAreRefused) {
  ModelConfig c;
  c.vocab = 19;
  c.layers = 2;
  c.dim = 16;
  c.heads = 2;
  c.context = 8;
  const auto model = make_model(c);
  const Tensor tokens = zeros({2, 8}, DType::i64);
  EXPECT_THROW(model->part(tokens, true, 0, 3), ValueError);
  EXPECT_THROW(model->part(tokens, true, 1, 0), ValueError);
  EXPECT_THROW(model->part(zeros({2, 8, 15}), false, 0, 1), ShapeError);
  EXPECT_THROW(model->part(zeros({2, 8, 16}), false, 0, 1, {}, true), ShapeError);
  EXPECT_THROW(model->part(zeros({3, 2, 8, 16}), false, 0, 1, {}, true), ShapeError);
  EXPECT_THROW(model->part(zeros({2, 9}, DType::i64), true, 0, 1), ShapeError);
  EXPECT_THROW(model->part(tokens, true, 0, 2, zeros({2, 7}, DType::i64)), ShapeError);
}

}  // namespace
}  // namespace strata
