#pragma once
// How the allocator tells a Timeline what it does. Nothing is recorded where is_recording() is false.

#include <cstddef>
#include <string>

#include "strata/core/backend.h"

namespace strata::memory {

/// After a block was taken. `holder` as the heap knows it: a string that lives for ever, or nullptr.
void record_taken(Device device, Tier tier, const void* block, size_t bytes, Tag tag, const std::string* holder);
/// Before one is given back.
void record_given(Device device, Tier tier, const void* block);
/// It counts under another tag from now on.
void record_retagged(Device device, Tier tier, const void* block, Tag tag);

}  // namespace strata::memory
