#pragma once
// Distinct texts, numbered in the order in which they came.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text::detail {

/// Texts in one arena, found by an open-addressing table over their hashes. At most 2^31 - 1 of them, of less than 4
/// GiB each.
class TextTable {
 public:
  static constexpr int32_t kNone = -1;

  TextTable();
  void reserve(size_t texts, size_t bytes);
  /// Its number, and whether it is new.
  std::pair<int32_t, bool> add(std::string_view text);
  /// Its number; kNone where it was not added.
  int32_t find(std::string_view text) const;
  /// Until the next add().
  std::string_view operator[](int32_t number) const {
    const Entry& e = entries_[static_cast<size_t>(number)];
    return {bytes_.data() + e.begin, e.size};
  }
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  /// Memory that it holds.
  size_t memory() const;
  /// Forgets the texts, keeps the memory.
  void clear();

 private:
  struct Entry {
    uint64_t begin;
    uint32_t size;
  };
  struct Slot {
    uint32_t hash;
    int32_t entry;  // kNone: free
  };
  /// The slot of the text, or the free one where it would be.
  size_t place(std::string_view text, uint64_t hash) const;
  void grow(size_t slots);

  uint64_t seed_;
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace strata::text::detail
