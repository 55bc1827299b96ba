#include "strata/text/pipeline/pair_merger_inl.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/text/pipeline/byte_hash_inl.h"

namespace strata::text::detail {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
}  // namespace

PairMerger::Counts::Counts() : seed_(hash_seed()), slots_(1024) {}

PairMerger::Counts::Slot& PairMerger::Counts::place(uint64_t key) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash_word(key, seed_) & mask;
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
  return slots_[at];
}

int64_t& PairMerger::Counts::operator[](uint64_t key) {
  Slot* slot = &place(key);
  if (slot->key == kFree) {
    if ((used_ + 1) * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& s : old)
        if (s.key != kFree) place(s.key) = s;
      slot = &place(key);
    }
    slot->key = key;
    ++used_;
  }
  return slot->count;
}

void PairMerger::add(std::span<const int32_t> ids, int64_t count) {
  if (ids.size() < 2) return;
  check(words_.size() < std::numeric_limits<uint32_t>::max() && ids.size() < std::numeric_limits<uint32_t>::max(),
        "tokenizer", "too many or too long words to learn from");
  words_.push_back({ids_.size(), static_cast<uint32_t>(ids.size()), count});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

void PairMerger::count_pairs() {
  counted_ = true;
  if (!ids_.empty()) lengths_.assign(static_cast<size_t>(*std::max_element(ids_.begin(), ids_.end())) + 1, 1);
  // Once for the counts, and once more to put the words of each pair side by side.
  const auto pairs = [&](auto&& f) {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const int32_t* const ids = ids_.data() + words_[w].begin;
      for (uint32_t i = 0; i + 1 < words_[w].size; ++i) f(key_of(ids[i], ids[i + 1]), w);
    }
  };
  struct Seen {
    uint64_t words = 0;
    uint32_t last = ~uint32_t{0};
  };
  std::vector<Seen> seen;
  Counts number;  // of a pair in `seen`, counted from 1
  pairs([&](uint64_t key, uint32_t word) {
    counts_[key] += words_[word].count;
    int64_t& at = number[key];
    if (at == 0) {
      seen.emplace_back();
      at = static_cast<int64_t>(seen.size());
    }
    Seen& s = seen[static_cast<size_t>(at - 1)];
    s.words += s.last != word;
    s.last = word;
  });
  uint64_t total = 0;
  queue_.resize(seen.size());
  counts_.each([&](uint64_t key, int64_t count) {
    const auto at = static_cast<size_t>(number[key] - 1);
    queue_[at] = {count, key, total, total};
    total += seen[at].words;
    seen[at].last = ~uint32_t{0};
  });
  positions_.resize(total);
  pairs([&](uint64_t key, uint32_t word) {
    const auto at = static_cast<size_t>(number[key] - 1);
    if (seen[at].last == word) return;
    seen[at].last = word;
    positions_[queue_[at].end++] = word;
  });
  std::make_heap(queue_.begin(), queue_.end());
}

std::optional<PairMerger::Pair> PairMerger::next() {
  if (!counted_) count_pairs();
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    top_ = queue_.back();
    const int64_t count = counts_[top_.key];
    if (count == top_.count) {
      queue_.pop_back();
      return Pair{static_cast<int32_t>(top_.key >> 32), static_cast<int32_t>(top_.key & 0xffffffffu), count};
    }
    // It changed since: queued again where it belongs now.
    queue_.back().count = count;
    if (count > 0)
      std::push_heap(queue_.begin(), queue_.end());
    else
      queue_.pop_back();
  }
  return std::nullopt;
}

void PairMerger::merge(int32_t id) {
  const auto left = static_cast<size_t>(top_.key >> 32), right = static_cast<size_t>(top_.key & 0xffffffffu);
  if (static_cast<size_t>(id) >= lengths_.size()) lengths_.resize(static_cast<size_t>(id) + 1, 1);
  lengths_[static_cast<size_t>(id)] = lengths_[left] + lengths_[right];
  for (Side* side : {&before_new_, &after_new_, &before_old_, &after_old_}) side->resize(lengths_.size(), -1);
  for (uint64_t p = top_.begin; p < top_.end; ++p) merge_in(positions_[p], id);
  apply_changes();
}

void PairMerger::merge_in(uint32_t word, int32_t id) {
  Word& w = words_[word];
  int32_t* const ids = ids_.data() + w.begin;
  const auto left = static_cast<int32_t>(top_.key >> 32), right = static_cast<int32_t>(top_.key & 0xffffffffu);
  const int64_t length = lengths_[static_cast<size_t>(id)];
  const auto makes = [&](int32_t other) { return lengths_[static_cast<size_t>(other)] + length < max_length_; };
  uint32_t to = 0;
  for (uint32_t i = 0; i < w.size; ++i) {
    if (ids[i] != left || i + 1 == w.size || ids[i + 1] != right) {
      ids[to++] = ids[i];
      continue;
    }
    if (to > 0) {
      const int32_t before = ids[to - 1];
      change(before_old_, before, key_of(before, left), -w.count, word);
      if (makes(before)) change(before_new_, before, key_of(before, id), w.count, word);
    }
    if (i + 2 < w.size) {
      const int32_t after = ids[i + 2];
      change(after_old_, after, key_of(right, after), -w.count, word);
      // the id itself twice is one pair, whichever was first
      if (makes(after)) change(after == id ? before_new_ : after_new_, after, key_of(id, after), w.count, word);
    }
    ids[to++] = id;
    ++i;
  }
  w.size = to;
}

void PairMerger::change(Side& side, int32_t other, uint64_t key, int64_t by, uint32_t word) {
  int32_t& at = side[static_cast<size_t>(other)];
  if (at < 0) {
    at = static_cast<int32_t>(changes_.size());
    changes_.push_back({key, &side, other});
  }
  Change& c = changes_[static_cast<size_t>(at)];
  c.by += by;
  if (by > 0 && c.last != word) {
    c.last = word;
    ++c.words;
    gained_.emplace_back(at, word);
  }
}

void PairMerger::apply_changes() {
  for (const Change& c : changes_) {
    counts_[c.key] += c.by;
    (*c.side)[static_cast<size_t>(c.other)] = -1;
  }
  uint64_t end = positions_.size();
  for (Change& c : changes_) {
    if (c.words == 0) continue;
    const uint64_t begin = end;
    end += c.words;
    if (const int64_t count = counts_[c.key]; count > 0) {
      queue_.push_back({count, c.key, begin, end});
      std::push_heap(queue_.begin(), queue_.end());
    }
    c.words = begin;
  }
  positions_.resize(end);
  for (const auto& [at, word] : gained_) positions_[changes_[static_cast<size_t>(at)].words++] = word;
  changes_.clear();
  gained_.clear();
}

}  // namespace strata::text::detail
