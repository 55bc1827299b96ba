#pragma once
// What the library tells recorders beside the calls that they see.

#include <cstdint>

#include "strata/core/storage.h"

namespace strata::detail {

/// `copy` has the bytes of the storage of that watch_number() from now on: bytes that were elsewhere for a while and
/// came back. Recordings of this thread show both as one storage, which lives as long as the last of them.
void storage_returns(Storage& copy, uint64_t number);

/// How many calls this thread's newest recorder has seen begin in the part that it is at; 0 where nobody records.
int32_t recorded_calls();

}  // namespace strata::detail
