#pragma once
// Memory of any kind by its device: raw blocks, what is in use, limits. strata/core/backend.h has the kinds.
// On the host freed blocks are kept and reused, because returning large blocks to the kernel costs a page fault per
// page at the next step. The meta device accounts for the same requests without touching memory: that is how a dry run
// knows its peak.

#include <cstddef>
#include <cstdint>

#include "strata/core/backend.h"
#include "strata/core/device.h"

namespace strata::memory {

/// Every block starts at a multiple of this many bytes.
inline constexpr size_t kAlignment = 64;

/// Uninitialised memory of at least `nbytes` on `device` (nullptr for 0 bytes), attributed to `tag` and to the thread's
/// current module. On the meta device: a token that must not be read through. Throws MemoryError, naming what was
/// asked, the limit and who holds what.
void* allocate(Device device, size_t nbytes, Tag tag);
/// Gives back what allocate() returned for the same arguments. Any thread may call it.
void deallocate(Device device, void* data, size_t nbytes, Tag tag);

/// While one lives, allocate() fills host memory with `pattern`, on every thread: what a kernel leaves unwritten shows,
/// because it differs between two patterns. 0xff makes NaN of every floating type. For tests and `strata lab verify`.
class PoisonScope {
 public:
  explicit PoisonScope(uint8_t pattern);
  ~PoisonScope();
  PoisonScope(const PoisonScope&) = delete;

 private:
  int previous_;
};
/// Bytes that a request of `nbytes` really gets; those past `nbytes` belong to nobody and are poisoned too.
size_t block_size(size_t nbytes);

/// What is in use of a device's memory of one tier: of its own where none is said. Nothing where there is no such
/// memory.
Stats stats(Device device, Tier tier = {});
/// The peaks start again from what is in use now.
void reset_peak(Device device, Tier tier = {});
/// The same of a device type; for cuda, of the first card.
Stats stats(DeviceType device);
void reset_peak(DeviceType device);
/// Returns to the system what every backend keeps for reuse.
void release_cached();
/// At most this many bytes for tensors in memory of a kind; 0 (the default) means as much as there is: on the host the
/// machine's memory or the control group's share of it. Returns the previous value. Throws ValueError where the kind
/// has no limit of its own (a card's is cuda::set_memory_fraction), DeviceError where there is no such memory.
int64_t set_limit(int64_t bytes, Device device = {}, Tier tier = {});

}  // namespace strata::memory
