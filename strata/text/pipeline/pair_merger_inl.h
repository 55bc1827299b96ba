#pragma once
// Learning merges: which pair of neighbours is the most frequent, again and again.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace strata::text::detail {

/// Words as ids with their counts. Counts of pairs are kept up to date merge by merge, over distinct words only; which
/// words a pair occurs in is known from when it came to be. Memory is a small multiple of the ids of all words.
class PairMerger {
 public:
  struct Pair {
    int32_t left, right;
    int64_t count;
  };

  /// Pairs whose lengths (a word's ids have 1, merged ones the sum) reach `max_length` are not made by merges.
  explicit PairMerger(int64_t max_length = std::numeric_limits<int64_t>::max()) : max_length_(max_length) {}

  /// Ids are >= 0. All words come before the first next().
  void add(std::span<const int32_t> ids, int64_t count);
  /// The most frequent pair, of equals the one of smaller ids; nothing where none is left. It is as if it were gone:
  /// the next call has another one. Where an id was made of several pairs, a pair that was merged before can come back;
  /// its count is then what it was, and what came since (as in tokenizers, whose result this decides).
  std::optional<Pair> next();
  /// Replaces the pair that next() gave by `id` wherever it stands, from the left.
  void merge(int32_t id);

 private:
  struct Word {
    uint64_t begin;
    uint32_t size;
    int64_t count;
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    uint64_t begin, end;  // its words in positions_
    // The most frequent first; among equals the smaller ids.
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : key > o.key; }
  };
  // Counts by pair, in an open-addressing table.
  class Counts {
   public:
    Counts();
    int64_t& operator[](uint64_t key);
    template <class F>
    void each(F&& f) {
      for (Slot& s : slots_)
        if (s.key != kFree) f(s.key, s.count);
    }

   private:
    static constexpr uint64_t kFree = ~uint64_t{0};  // no pair: ids are >= 0
    struct Slot {
      uint64_t key = kFree;
      int64_t count = 0;
    };
    Slot& place(uint64_t key);
    uint64_t seed_;
    size_t used_ = 0;
    std::vector<Slot> slots_;  // a power of two, at most half full
  };
  // The pairs that a merge changes have one of its ids; by the other id, the place in changes_, or -1.
  using Side = std::vector<int32_t>;
  struct Change {
    uint64_t key;
    Side* side;
    int32_t other;
    int64_t by = 0;
    uint32_t last = ~uint32_t{0};  // the last word in which the pair came to be
    uint64_t words = 0;            // how many such words; then where the next one goes
  };

  void count_pairs();
  void merge_in(uint32_t word, int32_t id);
  void change(Side& side, int32_t other, uint64_t key, int64_t by, uint32_t word);
  void apply_changes();

  int64_t max_length_;
  std::vector<Word> words_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> lengths_;  // of each id
  Counts counts_;
  std::vector<Candidate> queue_;  // a heap
  std::vector<uint32_t> positions_;
  bool counted_ = false;
  Candidate top_{};

  std::vector<Change> changes_;  // of the merge that is made
  Side before_new_, after_new_, before_old_, after_old_;
  std::vector<std::pair<int32_t, uint32_t>> gained_;  // a change and the word in which it gained
};

}  // namespace strata::text::detail
