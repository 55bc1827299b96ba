#pragma once
// Telling storages apart without holding them.

#include <cstdint>

#include "strata/core/storage.h"

namespace strata::detail {

/// The number of a storage (Storage::watched), given to it now where it has none: no other storage ever has the same.
uint64_t watch(Storage& s);

}  // namespace strata::detail
