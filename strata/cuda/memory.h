#pragma once
// Memory of CUDA devices, below strata/memory/allocator.h, which ordinary code uses.
//
// Each stream of a device has a heap in an address range of its own, reserved once and filled with physical memory as
// it grows (CUDA's virtual-memory API): blocks split and merge over the whole range, so that fragmentation costs holes,
// never the run. Blocks belong to the stream that was current when they were made; giving one back makes it free for
// later work of that stream at once, without waiting for the device. A block that other streams used must be named to
// record_stream(); it becomes free when they have passed the point at which it was given back.

#include <cstdint>
#include <string>

#include "strata/core/device.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"

namespace strata::cuda {

void* allocate(Device device, size_t nbytes, memory::Tag tag, const std::string* module);
void deallocate(Device device, void* data, size_t nbytes, memory::Tag tag);
void retag(Device device, void* data, size_t nbytes, memory::Tag from, memory::Tag to);
memory::Stats stats(int device);
void reset_peak(int device);
/// Unmaps every physical chunk that holds no block.
void release_cached();
/// Pinned host memory (page-locked, which the card copies from and to on its own), kept for reuse.
void* allocate_pinned(size_t nbytes);
void deallocate_pinned(void* data, size_t nbytes);

/// Copies bytes between host and device, within a device, or between devices, on the current stream of the device that
/// receives (or of the one that sends, for a copy to the host). A copy to the host returns when it is done. One from
/// ordinary host memory has read its source when it returns; one from pinned memory reads it later.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);
void fill_bytes(Device device, void* data, uint8_t value, size_t nbytes);

}  // namespace strata::cuda
