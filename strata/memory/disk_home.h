#pragma once
// Rooms in the store behind the tier `disk`, for the homes of its tensors.

#include "strata/memory/disk.h"
#include "strata/memory/homed.h"

namespace strata::memory {

/// A block of the store, which it keeps.
struct DiskRoom {
  std::shared_ptr<DiskStore> store;
  DiskStore::Block* block = nullptr;

  /// Throws as DiskStore::allocate().
  static DiskRoom* make(size_t nbytes) {
    auto r = std::make_unique<DiskRoom>();
    r->store = disk();
    r->block = r->store->allocate(nbytes);
    return r.release();
  }
  DiskRoom() = default;
  ~DiskRoom() {
    if (block != nullptr) store->deallocate(block);
  }
  DiskRoom(const DiskRoom&) = delete;
};

}  // namespace strata::memory
