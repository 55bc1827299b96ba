#pragma once
// Tokens and their ids, both ways.

#include <cstdint>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/text_table_inl.h"

namespace strata::text::detail {

/// Ids may have gaps; a token has one id and an id one token.
class Vocabulary {
 public:
  /// No id reaches it: the table of ids is as long as the largest.
  static constexpr int64_t kMaxIds = 1 << 24;
  static constexpr int32_t kNone = -1;

  void reserve(size_t tokens, size_t bytes) { tokens_.reserve(tokens, bytes); }
  /// Adds `token` with `id`, 0 <= id < kMaxIds, which must be free; false, and nothing happens, where the token is
  /// there already.
  bool add(std::string_view token, int32_t id);
  /// kNone where it is no token.
  int32_t find(std::string_view token) const {
    const int32_t number = tokens_.find(token);
    return number == TextTable::kNone ? kNone : ids_[static_cast<size_t>(number)];
  }
  /// Empty for an id out of range or in a gap.
  std::string_view token(int32_t id) const {
    return has(id) ? tokens_[by_id_[static_cast<size_t>(id)]] : std::string_view();
  }
  bool has(int32_t id) const { return id >= 0 && id < size() && by_id_[static_cast<size_t>(id)] >= 0; }
  /// The largest id and one.
  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }

 private:
  TextTable tokens_;
  std::vector<int32_t> ids_;    // of each text
  std::vector<int32_t> by_id_;  // the text of an id, or kNone
};

}  // namespace strata::text::detail
