// Encoders of text: what padding, types and pooling do. Their numbers are compared with transformers' where its files
// are (pretrained_test.cpp).

#include "strata/models/text_encoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/models/family.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

ModelSpec sample(std::string_view family, std::string_view name) {
  const Family& f = family_named(family);
  for (const FamilySample& s : f.samples)
    if (s.name == name) return read_spec(f, ConfigReader(s.config, "config.json"));
  throw ValueError("sample", "there is none");
}

double far(const Tensor& a, const Tensor& b) {
  return amax(abs(a.detach() - b.detach()).reshape({-1})).to_vector<double>()[0];
}

Tensor mask(const std::vector<std::vector<int>>& rows) {
  std::vector<uint8_t> all;
  for (const auto& row : rows)
    for (const int v : row) all.push_back(static_cast<uint8_t>(v));
  return from_span<uint8_t>(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}) != 0;
}

TEST(TextEncoder, PaddingChangesNoToken) {
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    manual_seed(1);
    TextEncoder model(sample(family, "plain"));
    model.eval();
    const Tensor tokens = randint(2, 96, {2, 7}), padding = mask({{0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1}});
    const Tensor h = model.hidden(tokens, padding);
    ASSERT_EQ(h.shape(), Shape({2, 7, model.spec().dim}));
    const Tensor alone = model.hidden(tokens.narrow(0, 1, 1).narrow(1, 0, 4));
    EXPECT_LT(far(h.narrow(0, 1, 1).narrow(1, 0, 4), alone), 1e-5) << family;
    EXPECT_LT(far(h.narrow(0, 0, 1), model.hidden(tokens.narrow(0, 0, 1))), 1e-5) << family;
    // Every place sees the whole text.
    Tensor other = tokens.clone();
    other.select(0, 0).select(0, 6).fill_(1);
    EXPECT_GT(far(model.hidden(other).select(0, 0).select(0, 0), h.select(0, 0).select(0, 0)), 1e-4) << family;
  }
}

TEST(TextEncoder, PositionsOfRobertaCountTokensAlone) {
  manual_seed(1);
  TextEncoder model(sample("roberta", "plain"));
  model.eval();
  const Tensor tokens = randint(2, 96, {1, 4});
  Tensor late = full({1, 6}, 1, DType::i64);
  late.narrow(1, 2, 4).copy_(tokens);
  const Tensor h = model.hidden(late, mask({{1, 1, 0, 0, 0, 0}}));
  EXPECT_LT(far(h.narrow(1, 2, 4), model.hidden(tokens)), 1e-5);
}

TEST(TextEncoder, HeadsAndTypes) {
  manual_seed(2);
  TextEncoder tokens_of(sample("bert", "tokens"));
  tokens_of.eval();
  const Tensor tokens = randint(0, 96, {2, 5});
  EXPECT_EQ(tokens_of.forward(tokens).shape(), Shape({2, 5, 96}));
  EXPECT_TRUE(tokens_of.head.same_as(tokens_of.token_embedding.weight));
  const Tensor types = full({2, 5}, 2, DType::i64);
  EXPECT_GT(far(tokens_of.hidden(tokens, {}, types), tokens_of.hidden(tokens)), 1e-4);
  EXPECT_EQ(far(tokens_of.hidden(tokens, {}, zeros({2, 5}, DType::i64)), tokens_of.hidden(tokens)), 0);
  EXPECT_THROW(tokens_of.pooled(tokens_of.hidden(tokens)), ValueError);
  for (const auto& [family, labels] : {std::pair("bert", 3), std::pair("roberta", 4), std::pair("distilbert", 3)}) {
    TextEncoder classifier(sample(family, "labels"));
    classifier.eval();
    EXPECT_EQ(classifier.forward(tokens).shape(), Shape({2, labels})) << family;
  }
  TextEncoder plain(sample("bert", "plain"));
  EXPECT_EQ(plain.pooled(plain.hidden(tokens)).shape(), Shape({2, 64}));
  EXPECT_THROW(plain.logits(plain.hidden(tokens)), ValueError);
  EXPECT_THROW(plain.hidden(tokens.select(0, 0)), ShapeError);
  EXPECT_THROW(plain.hidden(tokens, mask({{0, 0}})), ShapeError);
  EXPECT_THROW(plain.hidden(zeros({1, 65}, DType::i64)), ShapeError);
  EXPECT_THROW(TextEncoder(sample("distilbert", "plain")).hidden(tokens, {}, types), ValueError);
}

TEST(TextEmbeddings, PoolWhatIsNoPadding) {
  const Tensor h = from_span<float>(std::vector<float>{1, 2, 3, 4, 5, 6, -1, 8, 100, 100, 100, 100}, {2, 3, 2});
  const Tensor padding = mask({{0, 0, 0}, {0, 1, 1}});
  const auto is = [&](Pooling pooling, std::vector<float> want, bool normalize = false) {
    const std::vector<float> got =
        text_embeddings(h, padding, {.pooling = pooling, .normalize = normalize}).to_vector<float>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5) << static_cast<int>(pooling) << " " << i;
  };
  const auto root = static_cast<float>(std::sqrt(3.0)), length = static_cast<float>(std::sqrt(65.0));
  is(Pooling::first, {1, 2, -1, 8});
  is(Pooling::last, {5, 6, -1, 8});
  is(Pooling::mean, {3, 4, -1, 8});
  is(Pooling::max, {5, 6, -1, 8});
  is(Pooling::weighted_mean, {22.f / 6, 28.f / 6, -1, 8});
  is(Pooling::root_mean, {9 / root, 12 / root, -1, 8});
  is(Pooling::mean, {0.6f, 0.8f, -1 / length, 8 / length}, true);
  EXPECT_EQ(text_embeddings(h, {}, {.pooling = Pooling::last}).to_vector<float>(),
            (std::vector<float>{5, 6, 100, 100}));
  EXPECT_THROW(text_embeddings(h.select(0, 0), {}), ShapeError);
  EXPECT_THROW(text_embeddings(h, mask({{0, 0}})), ShapeError);
}

TEST(TextEncoder, ASpecAndItsConfigAreOneAnother) {
  for (const char* name : {"bert", "roberta", "distilbert"}) {
    const Family& f = family_named(name);
    for (const FamilySample& s : f.samples) {
      const ModelSpec spec = read_spec(f, ConfigReader(s.config, "config.json"));
      EXPECT_TRUE(read_spec(f, ConfigReader(f.config(spec), "config.json")) == spec) << name << " " << s.name;
      // Every parameter has its rows.
      const TextEncoder model(spec);
      std::set<std::string> named, rowed;
      for (const auto& [n, p] : model.named_parameters()) named.insert(n);
      for (const WeightRow& row : f.weights(spec)) rowed.insert(row.parameter);
      EXPECT_EQ(named, rowed) << name << " " << s.name;
    }
  }
  const ConfigReader wrong(R"({"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 64,
                               "num_attention_heads": 4, "position_embedding_type": "relative_key"})",
                           "config.json");
  EXPECT_THROW(read_spec(family_named("bert"), wrong), ValueError);
}

}  // namespace
}  // namespace strata
