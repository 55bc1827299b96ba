#pragma once
// Tokens and their ids, both ways.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text::detail {

/// Tokens in one arena, found by an open-addressing table over their hashes. Ids may have gaps; a token has one id and
/// an id one token.
class Vocabulary {
 public:
  /// No id reaches it: the table of ids is as long as the largest.
  static constexpr int64_t kMaxIds = 1 << 24;
  static constexpr int32_t kNone = -1;

  Vocabulary();
  void reserve(size_t tokens, size_t bytes);
  /// The id that `token` has already; or kNone, and then it is added with `id`, 0 <= id < kMaxIds, which must be free.
  int32_t add(std::string_view token, int32_t id);
  /// kNone where it is no token.
  int32_t find(std::string_view token) const;
  /// Empty for an id out of range or in a gap.
  std::string_view token(int32_t id) const;
  bool has(int32_t id) const { return id >= 0 && id < size() && by_id_[static_cast<size_t>(id)] >= 0; }
  /// The largest id and one.
  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }
  int64_t tokens() const { return static_cast<int64_t>(entries_.size()); }

 private:
  struct Entry {
    uint64_t begin;
    uint32_t size;
    int32_t id;
  };
  struct Slot {
    uint32_t hash;
    int32_t entry;  // kNone: free
  };
  std::string_view text(const Entry& e) const { return std::string_view(bytes_).substr(e.begin, e.size); }
  void grow(size_t slots);

  uint64_t seed_;
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<int32_t> by_id_;  // the entry of an id, or kNone
  std::vector<Slot> slots_;     // a power of two, at most half full
};

}  // namespace strata::text::detail
