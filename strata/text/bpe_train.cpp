// Training: counts of pairs are kept up to date merge by merge, over distinct words only.

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "strata/core/error.h"
#include "strata/text/bpe.h"
#include "strata/text/presplit.h"

namespace strata::text {
namespace {
struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // in which it occurs or occurred; may name one more than once
};

struct Candidate {
  int64_t count;
  uint64_t key;
  // The most frequent first; among equals the smaller ids.
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : key > o.key; }
};

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

  std::vector<Merge> learn(int64_t merges, int64_t min_frequency) {
    count_pairs();
    std::vector<Merge> result;
    while (static_cast<int64_t>(result.size()) < merges && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.key);
      if (found == pairs_.end() || found->second.count <= 0) continue;
      if (found->second.count != top.count) {  // counts only fall once a pair is queued: queue it where it belongs now
        queue_.push({found->second.count, top.key});
        continue;
      }
      if (top.count < min_frequency) break;
      result.emplace_back(static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key & 0xffffffffu));
      const std::vector<uint32_t> words = std::move(found->second.words);
      pairs_.erase(found);
      apply(result.back(), 255 + static_cast<int32_t>(result.size()), words);
    }
    return result;
  }

 private:
  void add_plain(std::string_view text) {
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, piece_length(text));
      text.remove_prefix(piece.size());
      if (piece.size() < 2) continue;
      const auto [entry, is_new] = index_.try_emplace(piece, words_.size());
      if (is_new) {
        words_.emplace_back();
        for (const char c : piece) words_.back().ids.push_back(static_cast<unsigned char>(c));
      }
      ++words_[entry->second].count;
    }
  }

  void count_pairs() {
    for (uint32_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        change(words_[w].ids[i], words_[w].ids[i + 1], w, words_[w].count);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  void change(int32_t left, int32_t right, uint32_t word, int64_t by) {
    Pair& pair = pairs_[detail::pair_key(left, right)];
    pair.count += by;
    if (by > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  }

  // Replaces the pair by `id` in the words given. All pairs that gain hold the new id, so each is queued once, here.
  void apply(Merge merge, int32_t id, const std::vector<uint32_t>& words) {
    std::vector<uint64_t> gained;
    for (const uint32_t w : words) {
      std::vector<int32_t>& ids = words_[w].ids;
      const int64_t count = words_[w].count;
      const auto replace = [&](int32_t old_left, int32_t old_right, int32_t left, int32_t right) {
        // the merged pair itself ("aa" inside "aaa") left the table as a whole
        if (old_left != merge.first || old_right != merge.second) change(old_left, old_right, w, -count);
        change(left, right, w, count);
        gained.push_back(detail::pair_key(left, right));
      };
      size_t to = 0;
      bool after_merge = false;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 < ids.size() && ids[i] == merge.first && ids[i + 1] == merge.second) {
          if (to > 0) replace(after_merge ? merge.second : ids[to - 1], merge.first, ids[to - 1], id);
          ids[to++] = id;
          ++i;
          after_merge = true;
        } else {
          if (after_merge) replace(merge.second, ids[i], id, ids[i]);
          ids[to++] = ids[i];
          after_merge = false;
        }
      }
      ids.resize(to);
    }
    std::sort(gained.begin(), gained.end());
    gained.erase(std::unique(gained.begin(), gained.end()), gained.end());
    for (const uint64_t key : gained) queue_.push({pairs_[key].count, key});
  }

  std::vector<Word> words_;
  std::unordered_map<std::string_view, size_t> index_;
  std::unordered_map<uint64_t, Pair, detail::PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
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
