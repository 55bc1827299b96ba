#include "strata/text/pipeline/text_table_inl.h"

#include <algorithm>
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

TextTable::TextTable() : seed_(hash_seed()), slots_(16, Slot{0, kNone}) {}

void TextTable::reserve(size_t texts, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(texts);
  size_t slots = slots_.size();
  while (slots < texts * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void TextTable::grow(size_t slots) {
  slots_.assign(slots, Slot{0, kNone});
  for (int32_t e = 0; e < size(); ++e) {
    const uint64_t hash = hash_bytes((*this)[e], seed_);
    size_t at = hash & (slots - 1);
    while (slots_[at].entry != kNone) at = (at + 1) & (slots - 1);
    slots_[at] = {static_cast<uint32_t>(hash >> 32), e};
  }
}

size_t TextTable::place(std::string_view text, uint64_t hash) const {
  const auto high = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].entry != kNone && (slots_[at].hash != high || (*this)[slots_[at].entry] != text))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

std::pair<int32_t, bool> TextTable::add(std::string_view text) {
  if ((entries_.size() + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  const uint64_t hash = hash_bytes(text, seed_);
  Slot& slot = slots_[place(text, hash)];
  if (slot.entry != kNone) return {slot.entry, false};
  slot = {static_cast<uint32_t>(hash >> 32), size()};
  entries_.push_back({bytes_.size(), static_cast<uint32_t>(text.size())});
  bytes_ += text;
  return {slot.entry, true};
}

int32_t TextTable::find(std::string_view text) const {
  return slots_[place(text, hash_bytes(text, seed_))].entry;
}

size_t TextTable::memory() const {
  return bytes_.capacity() + entries_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(Slot);
}

void TextTable::clear() {
  bytes_.clear();
  entries_.clear();
  std::fill(slots_.begin(), slots_.end(), Slot{0, kNone});
}

}  // namespace strata::text::detail
