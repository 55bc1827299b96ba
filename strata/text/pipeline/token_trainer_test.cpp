#include "strata/text/pipeline/token_trainer.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_model.h"

namespace strata::text {
namespace {

using nlohmann::json;

WordCounts counts_of(const std::map<std::string, int64_t>& words) {
  WordCounts counts;
  for (const auto& [word, count] : words) counts.add(word, count);
  return counts;
}

TokenTrainOptions options_of(const json& j) {
  TokenTrainOptions o;
  o.vocab_size = j.at("vocab_size");
  o.min_frequency = j.value("min_frequency", int64_t{0});
  o.special_tokens = j.value("special_tokens", std::vector<std::string>());
  o.initial_alphabet = j.value("initial_alphabet", std::vector<std::string>());
  if (j.contains("limit_alphabet")) o.limit_alphabet = j["limit_alphabet"].get<int64_t>();
  if (j.contains("max_token_length")) o.max_token_length = j["max_token_length"].get<int64_t>();
  if (j.contains("continuing_subword_prefix")) o.continuing_subword_prefix = j["continuing_subword_prefix"];
  if (j.contains("end_of_word_suffix")) o.end_of_word_suffix = j["end_of_word_suffix"];
  if (j.contains("unk_token")) o.unk_token = j["unk_token"];
  return o;
}

std::set<std::string> tokens_of(const json& model) {
  std::set<std::string> tokens;
  for (const auto& [token, id] : model.at("vocab").items()) tokens.insert(token);
  return tokens;
}

// train_cases.jsonl has what tokenizers trains (make_train_cases.py).
TEST(TokenTrainer, TrainsWhatTokenizersTrains) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/text/pipeline/train_cases.jsonl"));
  std::map<std::string, int> compared;
  for (std::string line; std::getline(rows, line);) {
    const json row = json::parse(line);
    const std::string type = row.at("type");
    const json model = train_token_model(type, counts_of(row.at("words")), options_of(row.at("options")));
    if (row.at("exact"))
      EXPECT_EQ(model, row.at("model")) << line;
    else
      EXPECT_EQ(tokens_of(model), tokens_of(row.at("model"))) << line;
    EXPECT_EQ(parse_token_model(model, "trained")->to_json(), model);
    ++compared[type];
  }
  for (const std::string type : {"BPE", "WordPiece", "WordLevel"}) EXPECT_GT(compared[type], 5) << type;
}

// The probability of all words under the scores of a Unigram, over all ways to make them.
double log_likelihood(const json& model, const std::map<std::string, int64_t>& words) {
  std::map<std::string, double> scores;
  for (const json& piece : model.at("vocab")) scores[piece[0]] = piece[1];
  double sum = 0;
  for (const auto& [word, count] : words) {
    std::vector<double> p(word.size() + 1);
    p[0] = 1;
    for (size_t end = 1; end <= word.size(); ++end)
      for (size_t begin = 0; begin < end; ++begin)
        if (const auto found = scores.find(word.substr(begin, end - begin)); found != scores.end())
          p[end] += p[begin] * std::exp(found->second);
    sum += static_cast<double>(count) * std::log(p[word.size()]);
  }
  return sum;
}

std::map<std::string, int64_t> stems_and_endings() {
  std::map<std::string, int64_t> words;
  std::mt19937 random(5);
  for (const std::string stem : {"talk", "walk", "look", "jump", "paint", "read", "learn", "play", "bark", "climb",
                                 "cook", "dream", "float", "gather", "help", "kick"})
    for (const std::string ending : {"", "s", "ing", "er", "ers", "able", "ings", "ed"})
      words[stem + ending] = 10 + random() % 9;
  return words;
}

TEST(TokenTrainer, UnigramFindsStemsAndEndings) {
  const auto words = stems_and_endings();
  const json small = train_token_model("Unigram", counts_of(words),
                                       {.vocab_size = 60, .special_tokens = {"<s>"}, .unk_token = "<unk>"});
  ASSERT_EQ(small.at("vocab").size(), 60);
  EXPECT_EQ(small.at("unk_id"), 0);
  EXPECT_EQ(small["vocab"][0], json({"<unk>", 0.0}));
  EXPECT_EQ(small["vocab"][1], json({"<s>", 0.0}));
  std::set<std::string> pieces;
  for (size_t i = 2; i < 60; ++i) {
    pieces.insert(small["vocab"][i][0].get<std::string>());
    if (i > 2) {
      EXPECT_LE(small["vocab"][i][1].get<double>(), small["vocab"][i - 1][1].get<double>());
    }
  }
  for (const std::string piece : {"talk", "walk", "look", "paint", "learn", "ing", "er", "able", "a", "k"})
    EXPECT_TRUE(pieces.contains(piece)) << piece << small;
  const auto model = parse_token_model(small, "trained");
  std::vector<int32_t> ids;
  model->encode("paintlearning", ids);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(model->token(ids[0]), "paint");
  // Room for more pieces makes the words more probable, and characters alone less.
  const double characters = log_likelihood(train_token_model("Unigram", counts_of(words), {.vocab_size = 1}), words);
  const double some = log_likelihood(small, words);
  EXPECT_GT(some, 0.7 * characters);
  EXPECT_GT(log_likelihood(train_token_model("Unigram", counts_of(words), {.vocab_size = 100}), words), some);
}

TEST(TokenTrainer, DependsOnTheWordsAlone) {
  const auto words = stems_and_endings();
  WordCounts backwards;
  for (auto w = words.rbegin(); w != words.rend(); ++w)
    for (int64_t n = 0; n < w->second; ++n) backwards.add(w->first);
  for (const std::string type : {"BPE", "WordPiece", "WordLevel", "Unigram"}) {
    const TokenTrainOptions options{.vocab_size = 40, .end_of_word_suffix = "$"};
    EXPECT_EQ(train_token_model(type, counts_of(words), options), train_token_model(type, backwards, options)) << type;
    EXPECT_EQ(parse_token_model(train_token_model(type, WordCounts(), options), "empty")->type(), type);
  }
}

TEST(TokenTrainer, RefusesBadOptions) {
  const auto error = [](std::string_view type, const TokenTrainOptions& options) -> std::string {
    try {
      train_token_model(type, WordCounts(), options);
    } catch (const ValueError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("BPA", {}),
            "train_token_model: there is no type 'BPA', known are BPE, WordPiece, WordLevel, Unigram");
  EXPECT_EQ(error("BPE", {.vocab_size = 1, .special_tokens = {"a", "b"}}),
            "train_token_model: vocab_size is 1, wanted from 2 special tokens to 4194303");
  EXPECT_EQ(error("BPE", {.special_tokens = {""}}), "train_token_model: a special token cannot be empty");
  EXPECT_EQ(error("BPE", {.special_tokens = {"\xff"}}), "train_token_model: special_tokens '\xff' is not UTF-8");
  EXPECT_EQ(error("BPE", {.initial_alphabet = {"ab"}}),
            "train_token_model: initial_alphabet 'ab' is not one character");
  EXPECT_EQ(error("Unigram", {.shrinking_factor = 1}),
            "train_token_model: shrinking_factor is 1, wanted between 0 and 1");
  EXPECT_EQ(error("BPE", {.end_of_word_suffix = std::string(65, '>')}),
            "train_token_model: end_of_word_suffix has over 64 bytes");
  EXPECT_EQ(error("Unigram", {.max_piece_length = 0}), "train_token_model: max_piece_length is 0, wanted 1 to 256");
}

WordCounts count_texts(const std::vector<std::string>& texts, const CountOptions& options) {
  size_t at = 0;
  return count_words(
      [&](std::string& text) {
        if (at == texts.size()) return false;
        text = texts[at++];
        return true;
      },
      [](std::string_view text, WordCounts& counts) {
        std::istringstream words{std::string(text)};
        for (std::string word; words >> word;) {
          if (word == "fail") throw ValueError("split", "failed");
          counts.add(word);
        }
      },
      options);
}

TEST(WordCounts, AreTheSameOnAnyNumberOfThreads) {
  std::mt19937 random(2);
  std::vector<std::string> texts;
  std::map<std::string, int64_t> wanted;
  for (int t = 0; t < 300; ++t) {
    texts.emplace_back();
    for (int w = 0; w < 400; ++w) {
      // many rare words, so that threads hand theirs on more than once
      const std::string word = std::to_string(random() % (w % 2 ? 100 : 100000));
      texts.back() += word + " ";
      ++wanted[word];
    }
  }
  for (const int threads : {1, 2, 5}) {
    const WordCounts counts = count_texts(texts, {.threads = threads});
    std::map<std::string, int64_t> got;
    for (int64_t i = 0; i < counts.size(); ++i) got[std::string(counts.word(i))] = counts.count(i);
    EXPECT_EQ(got, wanted) << threads;
  }
  texts[200] += "fail";
  EXPECT_THROW(count_texts(texts, {.threads = 3}), ValueError);
  texts.resize(100);
  EXPECT_THROW(count_texts(texts, {.threads = 3, .max_bytes = 1000}), MemoryError);
}

}  // namespace
}  // namespace strata::text
