#include "strata/text/pipeline/word_cache_inl.h"

#include "strata/text/pipeline/byte_hash_inl.h"

namespace strata::text::detail {

WordCache::WordCache() : seed_(hash_seed()) {}
WordCache::~WordCache() = default;

WordCache::Slot& WordCache::Table::slot(std::string_view word, uint64_t seed) {
  if (slots == nullptr) slots = std::make_unique<Slot[]>(kSlots);
  return slots[hash_bytes(word, seed) & (kSlots - 1)];
}

unsigned WordCache::thread_number() {
  static std::atomic<unsigned> next{0};
  thread_local const unsigned number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace strata::text::detail
