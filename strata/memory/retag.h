#pragma once
#include "strata/memory/allocator.h"

namespace strata::memory {

/// Counts a block that allocate() returned under another tag from now on: an activation that became a gradient.
/// deallocate() must then be given `to`.
void retag(Device device, void* block, size_t nbytes, Tag from, Tag to);

}  // namespace strata::memory
