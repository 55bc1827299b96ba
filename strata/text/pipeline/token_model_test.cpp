#include "strata/text/pipeline/token_model.h"

#include <bit>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/merges_inl.h"
#include "strata/text/pipeline/token_models_inl.h"

namespace strata::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<TokenModel> model_of(const json& j) {
  return parse_token_model(j, "t.json");
}

Ids encode(const TokenModel& model, std::string_view word) {
  Ids ids;
  model.encode(word, ids);
  return ids;
}

std::string error_of(const json& j) {
  try {
    model_of(j);
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

json bpe(json vocab, json merges) {
  return {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
}

// model_cases.jsonl has the ids that tokenizers gives (make_model_cases.py).
TEST(TokenModel, GivesTheIdsOfTokenizers) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/text/pipeline/model_cases.jsonl"));
  std::map<std::string, int> encoded, refused;
  for (std::string line; std::getline(rows, line);) {
    const json row = json::parse(line);
    const auto model = model_of(row.at("model"));
    const auto again = model_of(model->to_json());
    EXPECT_EQ(again->to_json(), model->to_json());
    EXPECT_EQ(model->type(), row.at("model").at("type").get<std::string>());
    for (size_t i = 0; i < row.at("words").size(); ++i) {
      const auto word = row["words"][i].get<std::string>();
      const json& ids = row.at("ids")[i];
      if (ids.is_null()) {
        EXPECT_THROW(encode(*model, word), ValueError) << word << " " << line;
        ++refused[std::string(model->type())];
        continue;
      }
      Ids got = {7};
      model->encode(word, got);
      model->encode(word, got);  // the second time perhaps from the cache
      Ids wanted = ids.get<Ids>();
      wanted.insert(wanted.begin(), 7);
      const Ids once = ids.get<Ids>();
      wanted.insert(wanted.end(), once.begin(), once.end());
      EXPECT_EQ(got, wanted) << word << " " << line;
      EXPECT_EQ(encode(*again, word), once) << word << " " << line;
      ++encoded[std::string(model->type())];
    }
  }
  for (const detail::TokenModelType* type : detail::token_model_types()) {
    EXPECT_GT(encoded[std::string(type->name)], 20) << type->name;
    EXPECT_GT(refused[std::string(type->name)], 0) << type->name;
  }
}

TEST(TokenModel, KnowsItsTokens) {
  const auto model = model_of(bpe({{"a", 0}, {"b", 2}, {"ab", 5}}, {"a b"}));
  EXPECT_EQ(model->vocab_size(), 6);
  EXPECT_EQ(model->id("ab"), 5);
  EXPECT_EQ(model->id("ba"), std::nullopt);
  EXPECT_EQ(model->token(5), "ab");
  EXPECT_EQ(model->token(1), "");
  EXPECT_EQ(model->token(-1), "");
  EXPECT_EQ(model->token(6), "");
  EXPECT_EQ(encode(*model, "abba"), (Ids{5, 2, 0}));

  const auto pieces = model_of({{"type", "Unigram"}, {"vocab", R"([["a", -1], ["b", -2], ["a", -3]])"_json}});
  EXPECT_EQ(pieces->vocab_size(), 3);
  EXPECT_EQ(pieces->id("a"), 2);
  EXPECT_EQ(pieces->token(0), "a");
  EXPECT_EQ(pieces->token(3), "");
}

TEST(TokenModel, WithoutATypeIsWhatItsFieldsSay) {
  EXPECT_EQ(model_of({{"vocab", {{"a", 0}}}, {"merges", json::array()}})->type(), "BPE");
  EXPECT_EQ(model_of({{"vocab", {{"a", 0}}}, {"unk_token", "a"}})->type(), "WordLevel");
  EXPECT_EQ(model_of({{"vocab", {{"a", 0}}},
                      {"unk_token", "a"},
                      {"continuing_subword_prefix", "##"},
                      {"max_input_chars_per_word", 9}})
                ->type(),
            "WordPiece");
  EXPECT_EQ(model_of({{"vocab", R"([["a", 0]])"_json}})->type(), "Unigram");
}

TEST(TokenModel, ErrorsNameTheField) {
  EXPECT_EQ(error_of(json::array()), "t.json: model must be an object");
  EXPECT_EQ(error_of({{"type", "BPA"}}), "t.json: model.type is 'BPA', known are BPE, WordPiece, WordLevel, Unigram");
  EXPECT_EQ(error_of({{"merges", 1}}),
            "t.json: model.type is missing, and the fields are of none of BPE, WordPiece, WordLevel, Unigram");
  EXPECT_EQ(error_of({{"type", 1}}), "t.json: model.type must be a string");
  EXPECT_EQ(error_of({{"type", "BPE"}, {"merges", json::array()}}), "t.json: model.vocab is missing");
  EXPECT_EQ(error_of(bpe(json::array(), json::array())), "t.json: model.vocab must be an object of tokens and ids");
  EXPECT_EQ(error_of(bpe({{"a", -1}}, json::array())), "t.json: model.vocab['a'] must be an id from 0 to 4194303");
  EXPECT_EQ(error_of(bpe({{"a", 1 << 22}}, json::array())), "t.json: model.vocab['a'] must be an id from 0 to 4194303");
  EXPECT_EQ(error_of(bpe({{"a", 3}, {"b", 3}}, json::array())), "t.json: model.vocab['b'] has the id 3 of 'a'");
  EXPECT_EQ(error_of(bpe({{"a", 3}}, 5)), "t.json: model.merges must be a list");
  EXPECT_EQ(error_of(bpe({{"a", 3}}, {"a"})),
            "t.json: model.merges[0] must be two tokens, a list of two or with one blank between them");
  EXPECT_EQ(error_of(bpe({{"a", 3}}, {"a b c"})),
            "t.json: model.merges[0] must be two tokens, a list of two or with one blank between them");
  EXPECT_EQ(error_of(bpe({{"a", 3}}, R"([["a", 1]])"_json)),
            "t.json: model.merges[0] must be two tokens, a list of two or with one blank between them");
  EXPECT_EQ(error_of(bpe({{"a", 3}, {"b", 4}}, {"a b"})),
            "t.json: model.merges[0] needs the token 'ab', which is not in vocab");
  json prefixed = bpe({{"a", 3}}, json::array());
  prefixed["continuing_subword_prefix"] = std::string(65, '#');
  EXPECT_EQ(error_of(prefixed), "t.json: model.continuing_subword_prefix must have at most 64 bytes");
  json dropout = bpe({{"a", 3}}, json::array());
  dropout["dropout"] = 0.1;
  EXPECT_EQ(error_of(dropout), "t.json: model.dropout must be null or 0: words have one encoding here");
  EXPECT_EQ(error_of({{"type", "Unigram"}, {"vocab", R"([["a", -1], ["b"]])"_json}}),
            "t.json: model.vocab[1] must be a token and its score");
  EXPECT_EQ(error_of({{"type", "Unigram"}, {"vocab", R"([["a", -1]])"_json}, {"unk_id", 1}}),
            "t.json: model.unk_id must be an id below 1");
  EXPECT_EQ(error_of({{"type", "Unigram"}, {"vocab", json::array({json::array({std::string(5000, 'a'), -1})})}}),
            "t.json: model.vocab[0] has 5000 bytes, at most 4096 are allowed");
}

// A word of many characters is merged by a heap, a short one by scans, a long one perhaps in parts: all the same.
TEST(TokenModel, LongWordsMergeAsTheRulesSay) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const std::string alphabet = round % 2 ? "ab" : "abcdef";
    json vocab = json::object(), merges = json::array();
    std::vector<std::string> tokens;
    for (const char c : alphabet) tokens.emplace_back(1, c);
    for (int i = 0; i < 30; ++i) {
      const std::string a = tokens[random() % tokens.size()], b = tokens[random() % tokens.size()];
      merges.push_back({a, b});
      tokens.push_back(a + b);
    }
    for (const std::string& t : tokens) vocab.emplace(t, vocab.size());
    const auto model = model_of(bpe(vocab, merges));
    std::string word;
    for (int i = 0; i < 400; ++i) word += alphabet[random() % alphabet.size()];

    // The rules to the letter: the merge of least rank, its leftmost place, until none is left.
    std::map<std::pair<std::string, std::string>, int> rank;
    for (int i = 0; i < static_cast<int>(merges.size()); ++i) rank[{merges[i][0], merges[i][1]}] = i;
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (;;) {
      int least = 1000;
      size_t at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = rank.find({parts[i], parts[i + 1]});
        if (found != rank.end() && found->second < least) least = found->second, at = i;
      }
      if (least == 1000) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    Ids wanted;
    for (const std::string& p : parts) wanted.push_back(vocab.at(p).get<int32_t>());
    EXPECT_EQ(encode(*model, word), wanted) << word << merges;
  }
}

TEST(TokenModel, ThreadsShareAModel) {
  json vocab = json::object();
  for (const std::string t : {"a", "b", "c", "ab", "abc", "ca", "bb"}) vocab[t] = vocab.size();
  const auto model = model_of(bpe(vocab, {"a b", "ab c", "c a", "b b"}));
  std::vector<std::string> words;
  std::vector<Ids> wanted;
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    words.emplace_back();
    for (size_t n = 1 + random() % 40; n > 0; --n) words.back() += "abc"[random() % 3];
    wanted.push_back(encode(*model, words.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 40; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < words.size(); ++i) {
        const size_t at = (i * 7 + static_cast<size_t>(t)) % words.size();
        if (encode(*model, words[at]) != wanted[at]) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Hours where the work grew with the square of the length.
TEST(TokenModel, VeryLongWordsTakeLittleTime) {
  const std::string many(3'000'000, 'a');
  json vocab = {{"a", 0}}, merges = json::array();
  for (std::string t = "a"; t.size() < 4096; t += t) merges.push_back({t, t}), vocab[t + t] = vocab.size();
  EXPECT_EQ(encode(*model_of(bpe(vocab, merges)), many).size(),
            many.size() / 4096 + static_cast<size_t>(std::popcount(many.size() % 4096)));
  EXPECT_EQ(encode(*model_of({{"type", "Unigram"}, {"vocab", R"([["a", -1], ["aaaaaaaa", -2]])"_json}}), many).size(),
            many.size() / 8);
  const json word_piece = {{"type", "WordPiece"},
                           {"unk_token", "?"},
                           {"continuing_subword_prefix", ""},
                           {"max_input_chars_per_word", 1ull << 40},
                           {"vocab", {{"aa", 0}, {std::string(64, 'a') + "b", 1}}}};
  EXPECT_EQ(encode(*model_of(word_piece), many).size(), many.size() / 2);
}

}  // namespace
}  // namespace strata::text
