#pragma once
// The "added_tokens" of tokenizer.json and where a text has them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "strata/text/pipeline/fields_inl.h"
#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/token_model.h"
#include "strata/text/pipeline/trie_inl.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::text::pipeline {

/// Some of the tokens, as they are looked for in a text.
class TokenFinder {
 public:
  /// Spellings and places among the tokens.
  explicit TokenFinder(const std::vector<std::pair<std::string, int32_t>>& tokens);
  bool empty() const { return empty_; }
  /// The longest spelling that begins at `at`, or at the first place behind where one does. False where there is none.
  bool find(std::string_view text, size_t at, size_t& begin, size_t& end, int32_t& token) const;

 private:
  detail::Trie trie_;
  bool first_[256] = {};  // bytes that one begins with
  bool empty_;
};

class AddedTokens {
 public:
  /// Reads the list. Ids are not the file's but what the library gives: the model's for a token that it has, else the
  /// next ones behind its vocabulary. Throws IoError for a token of more than kMaxBytes.
  AddedTokens(Fields& file, const TokenModel& model, const Normalizer* normalizer);
  static constexpr size_t kMaxBytes = 1024, kMaxTokens = 1'000'000;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// nullptr where the id is no added token's.
  const AddedToken* find(int32_t id) const;
  std::optional<int32_t> id(std::string_view content) const;
  /// What decoding takes an added token for: its normalised form where there is one.
  const std::string& decoded(const AddedToken& token) const;
  const TokenFinder& raw() const { return *raw_; }
  const TokenFinder& normalized() const { return *normalized_; }
  Json json() const;

  /// Cuts a text at the tokens of a finder: text(begin, end) and token(added, begin, end), from left to right.
  /// `allowed` says whether one may stand there.
  template <class Allowed, class TextPart, class TokenPart>
  void split(const TokenFinder& finder, std::string_view text, Allowed&& allowed, TextPart&& text_part,
             TokenPart&& token_part) const {
    size_t done = 0, at = 0, begin = 0, end = 0;
    for (int32_t i = 0; finder.find(text, at, begin, end, i);) {
      const AddedToken& added = tokens_[static_cast<size_t>(i)];
      at = end;
      if (!allowed(added, begin, end) || (added.single_word && touches_word(text, begin, end))) continue;
      if (added.lstrip) begin = blanks_before(text, begin, done);
      if (begin > end) continue;  // among the blanks that the last one took
      if (added.rstrip) end = blanks_behind(text, end);
      if (done < begin) text_part(done, begin);
      token_part(added, begin, end);
      done = end;
    }
    if (done < text.size()) text_part(done, text.size());
  }

 private:
  static bool touches_word(std::string_view text, size_t begin, size_t end);
  static size_t blanks_before(std::string_view text, size_t begin, size_t from);
  static size_t blanks_behind(std::string_view text, size_t end);

  std::vector<AddedToken> tokens_;  // in the order of their ids
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_map<int32_t, std::string> normal_forms_;  // of those that normalising changes
  std::optional<TokenFinder> raw_, normalized_;
};

}  // namespace strata::text::pipeline
