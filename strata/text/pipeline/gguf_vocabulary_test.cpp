#include "strata/text/pipeline/gguf_vocabulary.h"

#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/text/pipeline/token_model.h"

namespace strata::text {
namespace {

using nlohmann::json;

const GgufVocabulary kBytes = {.model = "gpt2",
                               .pre = "llama-bpe",
                               .tokens = {"a", "b", "ab", "\xc4\xa0", "<|end|>", "<|user|>"},
                               .token_types = {1, 1, 1, 1, 3, 4},
                               .merges = {"a b"},
                               .bos = 4};
const GgufVocabulary kPieces = {.model = "llama",
                                .tokens = {"<unk>", "<s>", "<0x41>", "a", "aa", "aaa", "\xe2\x96\x81",
                                           "\xe2\x96\x81"
                                           "a"},
                                .scores = {0, 0, 0, -3, -1, -2, -3, 0},
                                .token_types = {2, 3, 6, 1, 1, 1, 1, 1},
                                .bos = 1,
                                .unknown = 0};
const GgufVocabulary kWordPiece = {.model = "bert",
                                   .tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                              "\xe2\x96\x81"
                                              "low",
                                              "er", "[unused1]"},
                                   .token_types = {3, 2, 3, 3, 1, 1, 1},
                                   .bos = 2,
                                   .unknown = 1,
                                   .separator = 3};
const GgufVocabulary kUnigram = {.model = "t5",
                                 .tokens = {"<pad>", "</s>", "<unk>", "\xe2\x96\x81", "a", "ab"},
                                 .scores = {0, 0, 0, -2.5f, -1.25f, -3},
                                 .token_types = {3, 3, 2, 1, 1, 1},
                                 .eos = 1,
                                 .unknown = 2,
                                 .precompiled_charsmap = "table"};

std::string error_of(const GgufVocabulary& v) {
  try {
    tokenizer_json(v);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

TEST(GgufVocabulary, GoesToTokenizerJsonAndBack) {
  for (const GgufVocabulary& v : {kBytes, kPieces, kWordPiece, kUnigram}) {
    const json tokenizer = tokenizer_json(v);
    const GgufVocabulary back = gguf_vocabulary(tokenizer);
    EXPECT_EQ(back.model, v.model);
    EXPECT_EQ(back.pre, v.pre);
    EXPECT_EQ(back.tokens, v.tokens);
    EXPECT_EQ(back.token_types, v.token_types);
    EXPECT_EQ(back.merges, v.merges);
    EXPECT_EQ(back.unknown, v.unknown);
    EXPECT_EQ(back.precompiled_charsmap, v.precompiled_charsmap);
    EXPECT_EQ(tokenizer_json(back), tokenizer) << v.model;
  }
  EXPECT_EQ(gguf_vocabulary(tokenizer_json(kUnigram)).scores, kUnigram.scores);
}

TEST(GgufVocabulary, SaysWhatTokenizerJsonSays) {
  const json bytes = tokenizer_json(kBytes);
  EXPECT_EQ(bytes.at("model").at("ignore_merges"), true);
  EXPECT_EQ(bytes.at("pre_tokenizer").at("pretokenizers").size(), 2u);
  EXPECT_EQ(bytes.at("added_tokens")[0].at("special"), true);
  EXPECT_EQ(bytes.at("added_tokens")[1].at("special"), false);
  EXPECT_EQ(bytes.at("post_processor").at("single")[0].at("SpecialToken").at("id"), "<|end|>");
  GgufVocabulary plain = kBytes;
  plain.pre = "gpt-2";
  EXPECT_EQ(tokenizer_json(plain).at("post_processor"), nullptr);
  EXPECT_EQ(tokenizer_json(plain).at("model").at("ignore_merges"), false);

  const json pieces = tokenizer_json(kPieces);
  EXPECT_EQ(pieces.at("model").at("byte_fallback"), true);
  EXPECT_EQ(pieces.at("model").at("merges"),
            json::parse("[[\"▁\", \"a\"], [\"a\", \"a\"], [\"a\", \"aa\"], [\"aa\", \"a\"]]"));
  EXPECT_EQ(pieces.at("added_tokens").size(), 2u);

  const json words = tokenizer_json(kWordPiece);
  EXPECT_EQ(words.at("model").at("vocab"),
            json::parse(R"({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "low": 4, "##er": 5, "[unused1]": 6})"));
  EXPECT_EQ(words.at("normalizer").at("lowercase"), true);
  EXPECT_EQ(words.at("post_processor").at("single").size(), 3u);
  std::vector<int32_t> ids;
  parse_token_model(words.at("model"), "bert")->encode("lower", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{4, 5}));

  const json unigram = tokenizer_json(kUnigram);
  EXPECT_EQ(unigram.at("model").at("unk_id"), 2);
  EXPECT_EQ(unigram.at("normalizer").at("normalizers")[0].at("precompiled_charsmap"), "dGFibGU=");
}

TEST(GgufVocabulary, StandsInAFile) {
  for (const GgufVocabulary& v : {kBytes, kPieces, kWordPiece, kUnigram}) {
    io::GgufMetadata metadata("t.gguf");
    GgufVocabulary given = v;
    given.add_eos = false;
    given.lowercase = true;
    set_gguf_vocabulary(given, metadata);
    const GgufVocabulary read = gguf_vocabulary(metadata);
    EXPECT_EQ(tokenizer_json(read), tokenizer_json(given));
    EXPECT_EQ(read.add_eos, false);
    EXPECT_EQ(read.add_bos, std::nullopt);
    EXPECT_EQ(read.lowercase, true);
    EXPECT_EQ(read.precompiled_charsmap, v.precompiled_charsmap);
  }
  EXPECT_THROW(gguf_vocabulary(io::GgufMetadata("t.gguf")), IoError);
}

// Every name is found, and every way to cut has one name that comes back.
TEST(GgufVocabulary, EveryNameIsKnown) {
  EXPECT_GT(gguf_pre_names().size(), 40u);
  std::set<std::string_view> seen;
  for (const std::string_view name : gguf_pre_names()) {
    EXPECT_TRUE(seen.insert(name).second) << name;
    GgufVocabulary v = kBytes;
    v.pre = name;
    const json tokenizer = tokenizer_json(v);
    const GgufVocabulary back = gguf_vocabulary(tokenizer);
    v.pre = back.pre;
    EXPECT_EQ(tokenizer_json(v).at("pre_tokenizer"), tokenizer.at("pre_tokenizer")) << name << " " << back.pre;
  }
}

TEST(GgufVocabulary, RefusesByName) {
  GgufVocabulary v = kBytes;
  v.pre = "my-own";
  EXPECT_EQ(error_of(v).substr(0, 62), "tokenizer.ggml: pre is 'my-own', known are gpt-2, phi-2, mpt, ");
  v = kBytes;
  v.model = "rwkv";
  EXPECT_EQ(error_of(v), "tokenizer.ggml: model is 'rwkv', known are gpt2, llama, bert, t5");
  v = kBytes;
  v.token_types.pop_back();
  EXPECT_EQ(error_of(v), "tokenizer.ggml: token_type has 5 entries for 6 tokens");
  v = kBytes;
  v.tokens[1] = "a";
  EXPECT_EQ(error_of(v), "tokenizer.ggml: tokens[1] 'a' is token 0 already");
  v = kPieces;
  v.scores.clear();
  EXPECT_EQ(error_of(v), "tokenizer.ggml: scores has 0 entries for 8 tokens");

  json tokenizer = tokenizer_json(kBytes);
  tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x";
  EXPECT_THROW(gguf_vocabulary(tokenizer), ValueError);
  tokenizer = tokenizer_json(kPieces);
  tokenizer["model"]["merges"] = json::parse("[[\"a\", \"aa\"], [\"a\", \"a\"], [\"aa\", \"a\"]]");
  EXPECT_THROW(gguf_vocabulary(tokenizer), ValueError);
  EXPECT_THROW(gguf_vocabulary(json::parse(R"({"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}})")),
               ValueError);
  EXPECT_THROW(gguf_vocabulary(json::object()), ValueError);
}

}  // namespace
}  // namespace strata::text
