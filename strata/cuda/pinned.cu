// Page-locked memory of the host, which the cards copy from and to on their own.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/memory_inl.cuh"
#include "strata/memory/ledger.h"
#include "strata/memory/poison.h"

namespace strata::cuda {
namespace {
using memory::BlockInfo;
using memory::Bound;
using memory::Stats;
using memory::Tag;

// Blocks are kept by size: making one costs milliseconds.
class PinnedMemory final : public memory::Backend {
 public:
  PinnedMemory() : Backend("page-locked host", DeviceType::cpu, Tier::pinned, memory::Bytes::fixed) {}

  void* allocate(Device device, size_t nbytes, Tag tag) override {
    const auto bytes = rounded_up(nbytes);
    ledger_.check_room(static_cast<int64_t>(bytes), tag);
    void* data = reuse(bytes);
    if (data == nullptr) data = make(bytes, tag);
    const int pattern = memory::poison_pattern();
    if (pattern >= 0) [[unlikely]]
      std::memset(data, pattern, bytes);
    ledger_.take(device, data, static_cast<int64_t>(bytes), tag);
    return data;
  }
  void deallocate(Device device, void* data, size_t, Tag) override {
    ledger_.give(device, data);
    const std::lock_guard lock(mutex_);
    Waiting w{.data = data};
    if (const auto it = used_.find(data); it != used_.end()) {
      w.block = std::move(it->second);
      used_.erase(it);
    }
    if (w.block.streams.empty()) {
      free_.emplace(w.block.bytes, data);
      return;
    }
    if (!capturing()) mark(w);
    waiting_.push_back(std::move(w));
  }
  void retag(Device device, void* data, size_t, Tag, Tag to) override { ledger_.retag(device, data, to); }

  Bound bound(Device) override { return memory::backend(Device::cpu()).bound(Device::cpu()); }
  int64_t set_limit(Device, int64_t bytes) override { return ledger_.set_limit(bytes); }
  Stats stats(Device) override { return ledger_.stats(); }
  void reset_peak(Device) override { ledger_.reset_peak(); }
  std::vector<BlockInfo> blocks(Device) override { return ledger_.blocks(); }
  // Freeing waits for the device, which must not be while a graph is captured.
  void release_cached() override {
    if (captures_in_progress() > 0) return;
    const std::lock_guard lock(mutex_);
    take_back(true);
    for (const auto& [bytes, data] : free_) {
      check_cuda(cudaFreeHost(data), "release_cached", "cudaFreeHost");
      held_ -= static_cast<int64_t>(bytes);
    }
    free_.clear();
    ledger_.reserve(held_);
  }

  void record(const void* host, const Stream& stream) {
    const std::lock_guard lock(mutex_);
    auto it = used_.upper_bound(host);
    if (it == used_.begin()) return;
    Block& block = (--it)->second;
    if (static_cast<const std::byte*>(host) >= static_cast<const std::byte*>(it->first) + block.bytes) return;
    if (std::find(block.streams.begin(), block.streams.end(), stream) == block.streams.end())
      block.streams.push_back(stream);
  }

 private:
  struct Block {
    size_t bytes = 0;
    std::vector<Stream> streams;  // that copy from or to it
  };
  // A block given back that streams may still use.
  struct Waiting {
    void* data = nullptr;
    Block block = {};
    std::vector<std::unique_ptr<Event>> passed;  // one for each stream; none yet where a graph was being captured
  };

  static size_t rounded_up(size_t nbytes) { return (nbytes + 4095) / 4096 * 4096; }

  // Where that fails the device has failed or the program ends: without its events nobody gets the block.
  static void mark(Waiting& w) noexcept {
    try {
      std::vector<std::unique_ptr<Event>> passed;
      for (const Stream& s : w.block.streams) {
        passed.push_back(std::make_unique<Event>(false, s.device()));
        const DeviceScope scope(s.device());
        passed.back()->record(s);
      }
      w.passed = std::move(passed);
    } catch (const Error&) {
    }
  }
  // Frees the blocks whose streams have passed; with `wait`, all of them.
  void take_back(bool wait) {
    if (capturing()) return;
    for (size_t i = 0; i < waiting_.size();) {
      Waiting& w = waiting_[i];
      if (w.passed.empty()) mark(w);
      const bool done = !w.passed.empty() && std::all_of(w.passed.begin(), w.passed.end(), [&](const auto& e) {
        if (wait) e->synchronize();
        return e->query();
      });
      if (!done) {
        ++i;
        continue;
      }
      free_.emplace(w.block.bytes, w.data);
      if (i + 1 != waiting_.size()) std::swap(w, waiting_.back());
      waiting_.pop_back();
    }
  }

  void* reuse(size_t bytes) {
    const std::lock_guard lock(mutex_);
    take_back(false);
    const auto it = free_.find(bytes);
    if (it == free_.end()) return nullptr;
    void* data = it->second;
    free_.erase(it);
    used_.emplace(data, Block{.bytes = bytes, .streams = {}});
    return data;
  }
  void* make(size_t bytes, Tag tag) {
    properties(0);  // throws where there is no card, with the reason
    void* data = nullptr;
    const RelaxedScope relaxed(capturing());
    const cudaError_t e = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      ledger_.check_room(static_cast<int64_t>(bytes), tag, /*refused=*/true);
    }
    check_cuda(e, "allocate", "cudaHostAlloc");
    const std::lock_guard lock(mutex_);
    used_.emplace(data, Block{.bytes = bytes, .streams = {}});
    held_ += static_cast<int64_t>(bytes);
    ledger_.reserve(held_);
    return data;
  }

  memory::Ledger ledger_{*this};
  std::mutex mutex_;
  std::map<void*, Block, std::less<>> used_;
  std::vector<Waiting> waiting_;
  std::multimap<size_t, void*> free_;
  int64_t held_ = 0;  // in use, waiting or free
};

PinnedMemory& pinned_memory() {
  static auto* m = new PinnedMemory;  // outlives static tensors
  return *m;
}
[[maybe_unused]] const bool g_registered = [] {
  memory::register_backend(pinned_memory());
  return true;
}();
}  // namespace

void record_pinned(const void* host, const Stream& stream) {
  if (!capturing()) pinned_memory().record(host, stream);
}

void copy_to_pinned(const Tensor& pinned, const Tensor& t) {
  check<ShapeError>(pinned.shape() == t.shape() && t.is_contiguous(), "copy_to_pinned", "cannot copy ", t, " to ",
                    pinned);
  check<DTypeError>(pinned.dtype() == t.dtype(), "copy_to_pinned", "cannot copy ", t, " to ", pinned);
  check<DeviceError>(pinned.device().is_cpu() && t.device().is_cuda(), "copy_to_pinned",
                     "copies from a device to the host, got ", t, " and ", pinned);
  if (t.numel() == 0) return;
  const DeviceScope scope(t.device().index);
  check_cuda(cudaMemcpyAsync(pinned.raw_data(), t.raw_data(), static_cast<size_t>(t.nbytes()), cudaMemcpyDeviceToHost,
                             stream()),
             "copy_to_pinned", "cudaMemcpyAsync");
  record_pinned(pinned.raw_data(), current_stream(t.device().index));
}

}  // namespace strata::cuda
