// Training: words are counted, PairMerger says which pair comes next.

#include "strata/core/error.h"
#include "strata/text/bpe.h"
#include "strata/text/pipeline/pair_merger_inl.h"
#include "strata/text/pipeline/word_counts.h"
#include "strata/text/presplit.h"

namespace strata::text {
namespace {
class Trainer {
 public:
  // Counts the words of one text, leaving out the special tokens.
  void add(std::string_view text, const std::vector<std::string>& special) {
    while (!text.empty()) {
      size_t next = std::string_view::npos, length = 0;
      for (const std::string& name : special) {
        const size_t at = text.find(name);
        if (at < next || (at == next && at != std::string_view::npos && name.size() > length)) {
          next = at;
          length = name.size();
        }
      }
      add_plain(text.substr(0, next));
      text.remove_prefix(next == std::string_view::npos ? text.size() : next + length);
    }
  }

  std::vector<Merge> learn(int64_t merges, int64_t min_frequency) const {
    detail::PairMerger merger;
    std::vector<int32_t> ids;
    for (int64_t w = 0; w < words_.size(); ++w) {
      ids.clear();
      for (const char c : words_.word(w)) ids.push_back(static_cast<unsigned char>(c));
      merger.add(ids, words_.count(w));
    }
    std::vector<Merge> result;
    while (static_cast<int64_t>(result.size()) < merges) {
      const auto pair = merger.next();
      if (!pair || pair->count < min_frequency) break;
      result.emplace_back(pair->left, pair->right);
      merger.merge(255 + static_cast<int32_t>(result.size()));
    }
    return result;
  }

 private:
  void add_plain(std::string_view text) {
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, piece_length(text));
      text.remove_prefix(piece.size());
      words_.add(piece);
    }
  }

  WordCounts words_;
};
}  // namespace

BpeTokenizer train_bpe(std::span<const std::string_view> texts, const BpeTrainOptions& options) {
  const int64_t merges = options.vocab_size - 256 - static_cast<int64_t>(options.special_tokens.size());
  check(merges >= 0, "tokenizer", "vocab_size is ", options.vocab_size, ", at least 256 bytes + ",
        options.special_tokens.size(), " special tokens are needed");
  check(merges <= detail::kMaxMerges, "tokenizer", "vocab_size is ", options.vocab_size, ", at most ",
        detail::kMaxMerges, " merges are allowed");
  for (const std::string& name : options.special_tokens)
    check(!name.empty(), "tokenizer", "a special token cannot be empty");
  Trainer trainer;
  for (const std::string_view text : texts) trainer.add(text, options.special_tokens);
  return BpeTokenizer(trainer.learn(merges, options.min_frequency), options.special_tokens);
}

BpeTokenizer train_bpe(std::string_view text, const BpeTrainOptions& options) {
  return train_bpe(std::span<const std::string_view>(&text, 1), options);
}

}  // namespace strata::text
