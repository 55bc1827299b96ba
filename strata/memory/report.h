#pragma once
// What an allocation failure says.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/backend.h"

namespace strata::memory {

/// Throws the MemoryError of a request for `asked` bytes on `where` ("host", "cuda:0"): the limit, who holds what by
/// tag, which ops in which modules hold the most, and the cheapest fix.
[[noreturn]] void refuse(const Stats& s, std::span<const BlockInfo> blocks, int64_t asked, int64_t limit, Tag tag,
                         std::string_view where);

}  // namespace strata::memory
