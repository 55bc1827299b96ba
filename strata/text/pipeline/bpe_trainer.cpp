// Training of BPE, and of WordPiece, whose tokens are those of a BPE over prefixed characters.

#include <algorithm>
#include <map>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/pair_merger_inl.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/token_trainer.h"

namespace strata::text::detail {
namespace {

using nlohmann::json;

class BpeTrainer {
 public:
  BpeTrainer(const WordCounts& words, const TokenTrainOptions& options)
      : words_(words),
        options_(options),
        prefix_(options.continuing_subword_prefix.value_or("")),
        suffix_(options.end_of_word_suffix.value_or("")) {}

  void train() {
    for (const std::string& token : options_.special_tokens) tokens_.add(token);
    add_alphabet();
    PairMerger merger(options_.max_token_length.value_or(std::numeric_limits<int64_t>::max()));
    add_words(merger);
    while (tokens_.size() < options_.vocab_size) {
      const auto pair = merger.next();
      if (!pair || pair->count < options_.min_frequency) break;
      std::string_view right = tokens_[pair->right];
      if (right.starts_with(prefix_)) right.remove_prefix(prefix_.size());
      const int32_t id = tokens_.add(std::string(tokens_[pair->left]).append(right)).first;
      merges_.emplace_back(pair->left, pair->right);
      merger.merge(id);
    }
  }

  json vocabulary() const {
    json vocab = json::object();
    for (int32_t id = 0; id < tokens_.size(); ++id) vocab[std::string(tokens_[id])] = id;
    return vocab;
  }

  // A pair that was merged again has the rank of its last merge.
  json merges() const {
    std::map<std::pair<int32_t, int32_t>, size_t> last;
    for (size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
    json list = json::array();
    for (size_t i = 0; i < merges_.size(); ++i)
      if (last[merges_[i]] == i)
        list.push_back({std::string(tokens_[merges_[i].first]), std::string(tokens_[merges_[i].second])});
    return list;
  }

 private:
  template <class F>
  static void characters(std::string_view text, F&& f) {
    for (size_t at = 0; at < text.size();) {
      const size_t length = character_length(text[at], text.size() - at);
      f(text.substr(at, length), at == 0, at + length == text.size());
      at += length;
    }
  }

  // The characters of the words and those that were asked for, in the order of their code points, which is that of
  // their bytes.
  void add_alphabet() {
    TextTable found;
    std::vector<int64_t> counts;
    const auto count = [&](std::string_view character, int64_t by) {
      const auto [number, is_new] = found.add(character);
      if (is_new) counts.push_back(0);
      int64_t& c = counts[static_cast<size_t>(number)];
      c = by > std::numeric_limits<int64_t>::max() - c ? std::numeric_limits<int64_t>::max() : c + by;
    };
    for (int64_t w = 0; w < words_.size(); ++w)
      characters(words_.word(w), [&](std::string_view character, bool, bool) { count(character, words_.count(w)); });
    for (const std::string& character : options_.initial_alphabet)
      if (!character.empty()) count(character, std::numeric_limits<int64_t>::max());
    std::vector<std::pair<int64_t, std::string>> kept;
    for (int32_t i = 0; i < found.size(); ++i) kept.emplace_back(counts[static_cast<size_t>(i)], found[i]);
    if (options_.limit_alphabet && static_cast<int64_t>(kept.size()) > *options_.limit_alphabet) {
      std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
      });
      kept.resize(static_cast<size_t>(*options_.limit_alphabet));
    }
    std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [number, character] : kept) tokens_.add(character);
  }

  // Characters that are no tokens are left out of their words.
  void add_words(PairMerger& merger) {
    const bool decorated = !prefix_.empty() || !suffix_.empty();
    std::string token;
    const auto decorate = [&](std::string_view character, bool first, bool last) -> std::string_view {
      token.assign(first ? "" : prefix_).append(character).append(last ? suffix_ : "");
      return token;
    };
    if (decorated) {
      // In the order of words that are sorted: they come in none.
      std::vector<std::string_view> sorted;
      for (int64_t w = 0; w < words_.size(); ++w) sorted.push_back(words_.word(w));
      std::sort(sorted.begin(), sorted.end());
      for (const std::string_view word : sorted)
        characters(word, [&](std::string_view character, bool first, bool last) {
          if (tokens_.find(character) != TextTable::kNone) tokens_.add(decorate(character, first, last));
        });
    }
    std::vector<int32_t> ids;
    for (int64_t w = 0; w < words_.size(); ++w) {
      ids.clear();
      characters(words_.word(w), [&](std::string_view character, bool first, bool last) {
        const int32_t plain = tokens_.find(character);
        if (plain == TextTable::kNone) return;
        ids.push_back(decorated ? tokens_.find(decorate(character, first, last)) : plain);
      });
      merger.add(ids, words_.count(w));
    }
  }

  const WordCounts& words_;
  const TokenTrainOptions& options_;
  std::string prefix_, suffix_;
  TextTable tokens_;  // their numbers are the ids
  std::vector<std::pair<int32_t, int32_t>> merges_;
};

json text_or_null(const std::optional<std::string>& text) {
  return text ? json(*text) : json();
}
}  // namespace

json train_bpe_model(const WordCounts& words, const TokenTrainOptions& options) {
  BpeTrainer trainer(words, options);
  trainer.train();
  return {{"type", kBpeType.name},
          {"dropout", nullptr},
          {"unk_token", text_or_null(options.unk_token)},
          {"continuing_subword_prefix", text_or_null(options.continuing_subword_prefix)},
          {"end_of_word_suffix", text_or_null(options.end_of_word_suffix)},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", trainer.vocabulary()},
          {"merges", trainer.merges()}};
}

json train_word_piece_model(const WordCounts& words, const TokenTrainOptions& given) {
  TokenTrainOptions options = given;
  if (!options.continuing_subword_prefix) options.continuing_subword_prefix = "##";
  BpeTrainer trainer(words, options);
  trainer.train();
  return {{"type", kWordPieceType.name},
          {"unk_token", options.unk_token.value_or("[UNK]")},
          {"continuing_subword_prefix", *options.continuing_subword_prefix},
          {"max_input_chars_per_word", 100},
          {"vocab", trainer.vocabulary()}};
}

}  // namespace strata::text::detail
