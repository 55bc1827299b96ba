#pragma once
// The part of a tokenizer that turns a word into ids: what tokenizer.json calls its "model".

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace strata::text {

/// BPE, Unigram, WordPiece or WordLevel. Words come from the pre-tokeniser: valid UTF-8, already normalised (and, after
/// a byte-level pre-tokeniser, spelled in its alphabet). Const functions may be called from several threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// As the file's "type": "BPE", "Unigram", "WordPiece", "WordLevel".
  virtual std::string_view type() const = 0;
  /// The largest id and one; ids may have gaps.
  virtual int64_t vocab_size() const = 0;
  /// The id of a whole token, where it is one.
  virtual std::optional<int32_t> id(std::string_view token) const = 0;
  /// The token of an id; empty for an id that is out of range or in a gap.
  virtual std::string_view token(int32_t id) const = 0;
  /// Appends the ids of one word (not empty). Time is bounded by a small multiple of its bytes times their logarithm,
  /// whatever the word. Throws ValueError where the word has no ids and the model no unknown token.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  /// What stands under "model" in tokenizer.json; parse_token_model reads it back.
  virtual nlohmann::json to_json() const = 0;
};

/// Makes the model that a tokenizer.json describes. Throws IoError naming `source` and the JSON path that is wrong.
std::unique_ptr<TokenModel> parse_token_model(const nlohmann::json& model, std::string_view source);

}  // namespace strata::text
