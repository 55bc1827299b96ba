// Tensors in page-locked memory: the host's, which the cards copy from and to on their own, and the cards', whose kernels
// read and write it in place.

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "strata/core/tensor.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/memory_inl.cuh"
#include "strata/cuda/page_locked.h"
#include "strata/memory/ledger.h"
#include "strata/memory/poison.h"

namespace strata::cuda {
namespace {
using memory::BlockInfo;
using memory::Bound;
using memory::Stats;
using memory::Tag;

// Blocks of page-locked memory, with the books of a backend.
class LockedMemory : public memory::Backend {
 public:
  using Backend::Backend;

  void* allocate(Device device, size_t nbytes, Tag tag) override {
    ledger_.check_room(static_cast<int64_t>(nbytes), tag);
    void* data = allocate_locked(nbytes);
    const int pattern = memory::poison_pattern();
    if (pattern >= 0) [[unlikely]]
      std::memset(data, pattern, nbytes);
    ledger_.take(device, data, locked_size(data), tag);
    return data;
  }
  void deallocate(Device device, void* data, size_t, Tag) override {
    ledger_.give(device, data);
    deallocate_locked(data);
  }
  void retag(Device device, void* data, size_t, Tag, Tag to) override { ledger_.retag(device, data, to); }

  Bound bound(Device) override { return memory::backend(Device::cpu()).bound(Device::cpu()); }
  int64_t set_limit(Device, int64_t bytes) override { return ledger_.set_limit(bytes); }
  Stats stats(Device) override { return ledger_.stats(); }
  void reset_peak(Device) override { ledger_.reset_peak(); }
  std::vector<BlockInfo> blocks(Device) override { return ledger_.blocks(); }
  void release_cached() override { release_locked(); }

 protected:
  memory::Ledger ledger_{*this};
};

// What is locked for all tiers counts as reserved here.
class PinnedMemory final : public LockedMemory {
 public:
  PinnedMemory() : LockedMemory("page-locked host", DeviceType::cpu, Tier::pinned, memory::Bytes::fixed) {}
  Stats stats(Device) override {
    ledger_.reserve(locked_bytes());
    return ledger_.stats();
  }
};

// Kernels use a block until the streams that it was made and given back on have passed.
class UnifiedMemory final : public LockedMemory {
 public:
  UnifiedMemory() : LockedMemory("unified", DeviceType::cuda, Tier::named("unified"), memory::Bytes::fixed) {}

  void* allocate(Device device, size_t nbytes, Tag tag) override {
    refuse_in_capture("allocate", "unified memory is taken, which every replay would write to");
    const Stream stream = current_stream(device.index);  // throws where there is no such card
    void* data = LockedMemory::allocate(device, nbytes, tag);
    record_pinned(data, stream);
    return data;
  }
  void deallocate(Device device, void* data, size_t, Tag) override {
    ledger_.give(device, data);
    const Stream now = current_stream(device.index);
    deallocate_locked(data, {&now, 1});
  }
  // Through the host: a stream's copies between two places of the host have no order that CUDA promises.
  void copy_in(Device device, void* to, const void* from, size_t nbytes) override {
    current_stream(device.index).synchronize();
    std::memcpy(to, from, nbytes);
  }
  void copy_out(Device device, void* to, const void* from, size_t nbytes) override {
    current_stream(device.index).synchronize();
    std::memcpy(to, from, nbytes);
  }
};
}  // namespace

memory::Backend& pinned_host_memory() {
  static auto* m = new PinnedMemory;  // outlives static tensors
  return *m;
}
memory::Backend& unified_memory() {
  static auto* m = new UnifiedMemory;
  return *m;
}

void copy_to_pinned(const Tensor& pinned, const Tensor& t) {
  check<ShapeError>(pinned.shape() == t.shape() && t.is_contiguous(), "copy_to_pinned", "cannot copy ", t, " to ",
                    pinned);
  check<DTypeError>(pinned.dtype() == t.dtype(), "copy_to_pinned", "cannot copy ", t, " to ", pinned);
  check<DeviceError>(pinned.device().is_cpu() && t.device().is_cuda(), "copy_to_pinned",
                     "copies from a device to the host, got ", t, " and ", pinned);
  if (t.numel() == 0) return;
  const Pin pin(t, Access::read);
  const DeviceScope scope(t.device().index);
  check_cuda(cudaMemcpyAsync(pinned.raw_data(), t.raw_data(), static_cast<size_t>(t.nbytes()), cudaMemcpyDeviceToHost,
                             stream()),
             "copy_to_pinned", "cudaMemcpyAsync");
  record_pinned(pinned.raw_data(), current_stream(t.device().index));
}

}  // namespace strata::cuda
