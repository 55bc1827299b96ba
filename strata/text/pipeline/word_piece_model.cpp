// WordPiece: from the left always the longest token; those within a word have a prefix of their own (Schuster and
// Nakajima 2012; the reading is that of BERT).

#include <limits>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/trie_inl.h"

namespace strata::text::detail {
namespace {

// The tokens that start with `prefix`, without it.
Trie trie_of(const Vocabulary& vocabulary, std::string_view prefix) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int64_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (vocabulary.has(id) && vocabulary.token(id).starts_with(prefix))
      tokens.emplace_back(vocabulary.token(id).substr(prefix.size()), id);
  }
  return Trie(std::move(tokens));
}

class WordPieceModel final : public VocabularyModel {
 public:
  explicit WordPieceModel(const ModelReader& reader)
      : VocabularyModel(reader.vocabulary(kMaxTokenBytes)),
        unk_token_(reader.text("unk_token")),
        prefix_(reader.text("continuing_subword_prefix")),
        unk_(vocabulary_.find(unk_token_)),
        first_(trie_of(vocabulary_, "")),
        further_(trie_of(vocabulary_, prefix_)) {
    const auto most = whole_number(reader.required("max_input_chars_per_word"), std::numeric_limits<uint64_t>::max());
    reader.need(most.has_value(), "max_input_chars_per_word", "must be a number from 0");
    most_characters_ = *most;
  }

  std::string_view type() const override { return kWordPieceType.name; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    if (fits(word)) {
      size_t at = 0;
      while (at < word.size()) {
        size_t length = 0;
        int32_t longest = 0;
        (at == 0 ? first_ : further_).prefixes(word.substr(at), [&](size_t bytes, int32_t id) {
          length = bytes;
          longest = id;
        });
        if (length == 0) break;
        ids.push_back(longest);
        at += length;
      }
      if (at == word.size()) return;
      ids.resize(before);
    }
    check(unk_ != Vocabulary::kNone, "WordPiece", "no tokens make ", io::quote(word), ", and the unknown token ",
          io::quote(unk_token_), " is not in the vocabulary");
    ids.push_back(unk_);
  }

  nlohmann::json to_json() const override {
    return {{"type", type()},
            {"unk_token", unk_token_},
            {"continuing_subword_prefix", prefix_},
            {"max_input_chars_per_word", most_characters_},
            {"vocab", vocabulary_json(vocabulary_)}};
  }

 private:
  bool fits(std::string_view word) const {
    if (word.size() <= most_characters_) return true;
    uint64_t characters = 0;
    for (const char c : word) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    return characters <= most_characters_;
  }

  std::string unk_token_, prefix_;
  int32_t unk_;
  uint64_t most_characters_ = 0;
  Trie first_, further_;
};

}  // namespace

const TokenModelType kWordPieceType = {
    .name = "WordPiece",
    .fields = {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"},
    .parse = [](const ModelReader& reader) -> std::unique_ptr<TokenModel> {
      return std::make_unique<WordPieceModel>(reader);
    },
    .train = train_word_piece_model,
};

}  // namespace strata::text::detail
