#include "strata/text/pipeline/vocabulary_inl.h"

namespace strata::text::detail {

bool Vocabulary::add(std::string_view token, int32_t id) {
  const auto [number, is_new] = tokens_.add(token);
  if (!is_new) return false;
  ids_.push_back(id);
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1, kNone);
  by_id_[static_cast<size_t>(id)] = number;
  return true;
}

}  // namespace strata::text::detail
