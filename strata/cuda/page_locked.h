#pragma once
// Page-locked memory of the host, mapped into the cards: what page-locked tensors of the host, unified tensors and homes
// of a card's tensors stand on.

#include <cstddef>
#include <cstdint>
#include <span>

#include "strata/core/device.h"
#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// A block that both the host and every card read and write at its address: whole pages of its own, or a piece of a slab
/// where it is small (memory::LockedPool). Throws MemoryError naming the limit where pages cannot be locked, DeviceError
/// where there is no card.
void* allocate_locked(size_t nbytes);
/// What it takes.
int64_t locked_size(const void* block);
/// Gives it back. It is reused when `users`, and the streams that record_pinned() named, have passed this point.
void deallocate_locked(void* block, std::span<const Stream> users = {});
/// Bytes of pages that are locked now, and of them in blocks that are in use.
int64_t locked_bytes();
int64_t locked_bytes_used();
/// Unlocks what is not in use. Nothing while a graph is captured.
void release_locked();

/// Memory of the tiers that cards have beside their own. Where they are registered.
void register_tiers();

}  // namespace strata::cuda
