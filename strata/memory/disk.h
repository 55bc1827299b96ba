#pragma once
// The store behind the tier `disk`.

#include <memory>

#include "strata/memory/disk_store.h"

namespace strata::memory {

/// Where tensors of tier `disk` live: made by the first call, in the system's temporary directory unless use_disk() said
/// otherwise. It lives as long as somebody holds it or has a tensor in it. Throws IoError where it cannot be made.
std::shared_ptr<DiskStore> disk();
/// From now on disk() is a new store with these options, made at once. Throws ValueError while tensors live in the one
/// there was, or somebody else holds it; IoError as DiskStore's constructor, and then everything is as it was.
void use_disk(const DiskOptions& options);

}  // namespace strata::memory
