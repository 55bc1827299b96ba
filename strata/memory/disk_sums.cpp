#define XXH_INLINE_ALL
#include <xxhash.h>

#include "strata/memory/disk_core.h"

namespace strata::memory {

uint64_t page_sum(const std::byte* page) {
  const uint64_t sum = XXH3_64bits(page, kDiskPage);
  return sum > kLost ? sum : sum + 2;
}

}  // namespace strata::memory
