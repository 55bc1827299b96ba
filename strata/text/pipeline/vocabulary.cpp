#include "strata/text/pipeline/vocabulary_inl.h"

#include <random>

#include "strata/text/pipeline/byte_hash_inl.h"

namespace strata::text::detail {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

Vocabulary::Vocabulary() : seed_(hash_seed()), slots_(16, Slot{0, kNone}) {}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(tokens);
  size_t slots = slots_.size();
  while (slots < tokens * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void Vocabulary::grow(size_t slots) {
  slots_.assign(slots, Slot{0, kNone});
  for (size_t e = 0; e < entries_.size(); ++e) {
    const uint64_t hash = hash_bytes(text(entries_[e]), seed_);
    size_t at = hash & (slots - 1);
    while (slots_[at].entry != kNone) at = (at + 1) & (slots - 1);
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(e)};
  }
}

int32_t Vocabulary::add(std::string_view token, int32_t id) {
  if (const int32_t known = find(token); known != kNone) return known;
  if ((entries_.size() + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  const uint64_t hash = hash_bytes(token, seed_);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].entry != kNone) at = (at + 1) & (slots_.size() - 1);
  const auto entry = static_cast<int32_t>(entries_.size());
  slots_[at] = {static_cast<uint32_t>(hash >> 32), entry};
  entries_.push_back({bytes_.size(), static_cast<uint32_t>(token.size()), id});
  bytes_ += token;
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1, kNone);
  by_id_[static_cast<size_t>(id)] = entry;
  return kNone;
}

int32_t Vocabulary::find(std::string_view token) const {
  const uint64_t hash = hash_bytes(token, seed_);
  const auto high = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].entry != kNone; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash != high) continue;
    const Entry& e = entries_[static_cast<size_t>(slots_[at].entry)];
    if (text(e) == token) return e.id;
  }
  return kNone;
}

std::string_view Vocabulary::token(int32_t id) const {
  return has(id) ? text(entries_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])]) : std::string_view();
}

}  // namespace strata::text::detail
