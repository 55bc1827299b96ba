#pragma once
// Merging neighbours by rank: what byte-pair encodings share.

#include <cstdint>
#include <vector>

namespace strata::text::detail {

/// Pairs of ids that become one id, each with its rank.
class MergeTable {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;
  struct Entry {
    uint32_t rank = kNone;
    int32_t id = -1;
  };

  MergeTable();
  void reserve(size_t pairs);
  /// False, and nothing changes, where the pair is there already.
  bool add(int32_t left, int32_t right, Entry entry);
  /// rank kNone where the two do not merge.
  Entry find(int32_t left, int32_t right) const;
  size_t size() const { return used_; }

 private:
  struct Slot {
    uint64_t key;
    Entry entry;
  };
  size_t place(uint64_t key) const;
  void grow(size_t slots);

  uint64_t seed_;
  size_t used_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most half full; free where the rank is kNone
};

/// Replaces again and again the pair of least rank, the first of equals, by its id, until no two neighbours merge.
/// `ids` is from `from` to its end. Linear scans for few ids, a heap for more: n log n steps.
void merge_by_rank(const MergeTable& table, std::vector<int32_t>& ids, size_t from);

}  // namespace strata::text::detail
