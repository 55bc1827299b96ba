#pragma once
// The tiers beside a device's own memory, by name. docs/design/tiers.md says what each is and which device has which.

#include "strata/core/backend.h"

namespace strata::memory {

/// Page-locked host memory mapped into a card: tensors of a CUDA device whose kernels read and write it in place, over
/// the bus. Never CUDA managed memory.
inline const Tier kUnified = Tier::named("unified");
/// A file: the bytes are near (in the device's own memory) only while a tensor is pinned. For `cpu` and `cuda`.
inline const Tier kDisk = Tier::named("disk");

}  // namespace strata::memory
