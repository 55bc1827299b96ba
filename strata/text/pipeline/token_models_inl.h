#pragma once
// The record of a model: all that is known of one kind, in its own file.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/text/pipeline/token_model.h"
#include "strata/text/pipeline/token_trainer.h"
#include "strata/text/pipeline/vocabulary_inl.h"

namespace strata::text::detail {

/// Reads fields of "model"; whatever is wrong is an IoError with the source and the JSON path.
class ModelReader {
 public:
  ModelReader(const nlohmann::json& model, std::string_view source) : model_(model), source_(source) {}

  [[noreturn]] void fail(std::string_view path, std::string_view what) const;
  void need(bool ok, std::string_view path, std::string_view what) const {
    if (!ok) fail(path, what);
  }
  /// nullptr where it is absent or null.
  const nlohmann::json* optional(const char* key) const;
  const nlohmann::json& required(const char* key) const;
  bool flag(const char* key) const;  // absent: false
  std::optional<std::string> optional_text(const char* key) const;
  std::string text(const char* key) const;
  /// "vocab" as an object of tokens and ids. `longest`: the most bytes of a token.
  Vocabulary vocabulary(size_t longest) const;

 private:
  const nlohmann::json& model_;
  std::string_view source_;
};

/// A whole number from 0 and below `end`; nothing for any other value.
std::optional<uint64_t> whole_number(const nlohmann::json& value, uint64_t end);

/// Tokens and ids as tokenizer.json writes them.
nlohmann::json vocabulary_json(const Vocabulary& vocabulary);

struct TokenModelType {
  std::string_view name;            // the "type"
  std::vector<const char*> fields;  // without which it is no such model; a file without "type" is the first that fits
  std::unique_ptr<TokenModel> (*parse)(const ModelReader& reader);
  nlohmann::json (*train)(const WordCounts& words, const TokenTrainOptions& options);
};

nlohmann::json train_bpe_model(const WordCounts& words, const TokenTrainOptions& options);
nlohmann::json train_word_piece_model(const WordCounts& words, const TokenTrainOptions& options);
nlohmann::json train_word_level_model(const WordCounts& words, const TokenTrainOptions& options);
nlohmann::json train_unigram_model(const WordCounts& words, const TokenTrainOptions& options);

extern const TokenModelType kBpeType, kWordPieceType, kWordLevelType, kUnigramType;

/// In the order in which a file without "type" is tried.
std::span<const TokenModelType* const> token_model_types();

/// A model whose vocabulary is an object of tokens and ids.
class VocabularyModel : public TokenModel {
 public:
  int64_t vocab_size() const override { return vocabulary_.size(); }
  std::optional<int32_t> id(std::string_view token) const override {
    const int32_t id = vocabulary_.find(token);
    return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
  }
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }

 protected:
  explicit VocabularyModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

/// Longer words are refused: positions are 32 bits.
inline constexpr size_t kMaxWordBytes = size_t{1} << 30;
/// Of a prefix or suffix that characters get.
inline constexpr size_t kMaxDecoration = 64;
/// Longest token of the models that look for tokens at every position.
inline constexpr size_t kMaxTokenBytes = 4096;

/// Bytes of the character that starts with this byte, at most `left`.
inline size_t character_length(char first, size_t left) {
  const auto byte = static_cast<unsigned char>(first);
  const size_t n = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  return n < left ? n : left;
}

/// "<0x0A>", what byte_fallback calls a byte.
std::string byte_token(unsigned char byte);
/// The ids of all 256, kNone where one is not in the vocabulary.
std::vector<int32_t> byte_token_ids(const Vocabulary& vocabulary);

}  // namespace strata::text::detail
