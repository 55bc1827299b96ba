#include <algorithm>
#include <functional>
#include <limits>

#include "strata/core/error.h"
#include "strata/text/pipeline/byte_hash_inl.h"
#include "strata/text/pipeline/merges_inl.h"

namespace strata::text::detail {
namespace {
// Up to so many ids a scan for the least rank is faster than a heap.
constexpr size_t kScan = 48;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void merge_few(const MergeTable& table, std::vector<int32_t>& all, size_t from) {
  int32_t* const ids = all.data() + from;
  size_t n = all.size() - from;
  uint32_t rank[kScan];  // of ids[i] with ids[i + 1]
  int32_t into[kScan];
  const auto look = [&](size_t i) {
    const MergeTable::Entry e = table.find(ids[i], ids[i + 1]);
    rank[i] = e.rank;
    into[i] = e.id;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    const size_t at = static_cast<size_t>(std::min_element(rank, rank + n - 1) - rank);
    if (rank[at] == MergeTable::kNone) break;
    ids[at] = into[at];
    std::copy(ids + at + 2, ids + n, ids + at + 1);
    if (at + 2 < n) {
      std::copy(rank + at + 2, rank + n - 1, rank + at + 1);
      std::copy(into + at + 2, into + n - 1, into + at + 1);
    }
    --n;
    if (at > 0) look(at - 1);
    if (at + 1 < n) look(at);
  }
  all.resize(from + n);
}

struct Symbol {
  int32_t id;
  uint32_t rank;  // with the next
  int32_t into;
  int32_t previous, next;  // -1: none
};

void merge_many(const MergeTable& table, std::vector<int32_t>& ids, size_t from) {
  const size_t n = ids.size() - from;
  check(n <= static_cast<size_t>(std::numeric_limits<int32_t>::max()), "BPE", "a word has ", n,
        " characters and bytes");
  std::vector<Symbol> symbols(n);
  std::vector<uint64_t> heap;  // rank and position: the least rank first, the leftmost of equals
  const auto look = [&](int32_t at) {
    Symbol& s = symbols[static_cast<size_t>(at)];
    const MergeTable::Entry e =
        s.next < 0 ? MergeTable::Entry{} : table.find(s.id, symbols[static_cast<size_t>(s.next)].id);
    s.rank = e.rank;
    s.into = e.id;
    if (e.rank != MergeTable::kNone) heap.push_back(static_cast<uint64_t>(e.rank) << 32 | static_cast<uint32_t>(at));
    return e.rank != MergeTable::kNone;
  };
  for (size_t i = 0; i < n; ++i)
    symbols[i] = {ids[from + i], MergeTable::kNone, -1, static_cast<int32_t>(i) - 1,
                  i + 1 < n ? static_cast<int32_t>(i + 1) : -1};
  for (size_t i = 0; i + 1 < n; ++i) look(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top & 0xffffffffu);
    Symbol& s = symbols[static_cast<size_t>(at)];
    if (s.rank != static_cast<uint32_t>(top >> 32)) continue;  // it merged otherwise meanwhile
    Symbol& gone = symbols[static_cast<size_t>(s.next)];
    s.id = s.into;
    s.next = gone.next;
    gone.rank = MergeTable::kNone;
    gone.id = -1;
    if (s.next >= 0) symbols[static_cast<size_t>(s.next)].previous = at;
    if (look(at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (s.previous >= 0 && look(s.previous)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  size_t to = from;
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next)
    ids[to++] = symbols[static_cast<size_t>(at)].id;
  ids.resize(to);
}
}  // namespace

MergeTable::MergeTable() : seed_(hash_seed()), slots_(16) {}

void MergeTable::reserve(size_t pairs) {
  size_t slots = slots_.size();
  while (slots < pairs * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

// Where the key is, or the free slot where it would be.
size_t MergeTable::place(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash_word(key, seed_) & mask;
  while (slots_[at].entry.rank != kNone && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

void MergeTable::grow(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& s : old)
    if (s.entry.rank != kNone) slots_[place(s.key)] = s;
}

bool MergeTable::add(int32_t left, int32_t right, Entry entry) {
  if ((used_ + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  const uint64_t key = key_of(left, right);
  Slot& slot = slots_[place(key)];
  if (slot.entry.rank != kNone) return false;
  slot = {key, entry};
  ++used_;
  return true;
}

MergeTable::Entry MergeTable::find(int32_t left, int32_t right) const {
  return slots_[place(key_of(left, right))].entry;
}

void merge_by_rank(const MergeTable& table, std::vector<int32_t>& ids, size_t from) {
  if (ids.size() - from < 2) return;
  (ids.size() - from <= kScan ? merge_few : merge_many)(table, ids, from);
}

}  // namespace strata::text::detail
