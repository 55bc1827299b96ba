#pragma once
// Memory of CUDA devices and page-locked memory of the host: backends that register themselves, below
// strata/memory/allocator.h, which ordinary code uses; and what only this room does with them.
//
// Each stream of a device has a heap in an address range of its own, reserved once and filled with physical memory as
// it grows (CUDA's virtual-memory API): blocks split and merge over the whole range, so that fragmentation costs holes,
// never the run. Blocks belong to the stream that was current when they were made; giving one back makes it free for
// later work of that stream at once, without waiting for the device. A block that other streams used must be named to
// record_stream(); it becomes free when they have passed the point at which it was given back.

#include <cstddef>
#include <cstdint>

#include "strata/core/device.h"
#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// Pools for the graphs of a device: while a PoolScope lives, a thread's blocks come from heaps of that pool, one for
/// each stream, whose memory stays mapped, and is given to nobody else, until release_pool().
int create_pool(int device);
/// Throws nothing. Blocks of the pool that are still held stay valid.
void release_pool(int device, int pool) noexcept;
int64_t pool_bytes(int device, int pool);
class PoolScope {
 public:
  explicit PoolScope(int pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
};
/// Inside a PoolScope: memory from outside the pool again, for what is written before each replay. In the pool, what
/// the graph computes before the block's own place in it would overwrite that.
class OutsidePoolScope {
 public:
  OutsidePoolScope();
  ~OutsidePoolScope();
  OutsidePoolScope(const OutsidePoolScope&) = delete;

 private:
  bool previous_;
};
/// Threads that are inside a PoolScope: capturing. Nothing may wait for a whole device then.
int captures_in_progress();
/// Which capture of a graph this thread is in: a number that no other has; 0 outside.
uint64_t capture_number();

/// Up to 4000 bytes of the host to the device, as a kernel's parameters: never waits, needs no pinned memory, and a
/// graph that captures it keeps the bytes. On the current stream.
void put_bytes(void* to, Device device, const void* from, size_t nbytes);

/// Copies bytes between host and device, within a device, or between devices, on the current stream of the device that
/// receives (or of the one that sends, for a copy to the host). A copy to the host returns when it is done. One from
/// ordinary host memory has read its source when it returns; one from pinned memory reads it later. While a graph is
/// captured, copies to the host and from ordinary host memory throw DeviceError.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);
void fill_bytes(Device device, void* data, uint8_t value, size_t nbytes);

}  // namespace strata::cuda
