#include "strata/memory/allocator.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "strata/core/error.h"

namespace strata::memory {
namespace {

thread_local Tag t_tag = Tag::activation;

// Requests up to kSmall bytes come from thread-local free lists of one size class for each 64 bytes.
constexpr size_t kSmall = 4096;
constexpr size_t kClasses = kSmall / kAlignment;
constexpr size_t kChunk = size_t{1} << 20;

struct SmallPool {
  struct Block {
    Block* next;
  };
  Block* free[kClasses] = {};
  std::byte* bump = nullptr;
  std::byte* end = nullptr;

  // Blocks may outlive the thread, so chunks are never returned; the orphaned rest of a thread's chunk is bounded.
  void* take(size_t cls) {
    if (Block* b = free[cls]) {
      free[cls] = b->next;
      return b;
    }
    const size_t bytes = (cls + 1) * kAlignment;
    if (static_cast<size_t>(end - bump) < bytes) {
      bump = static_cast<std::byte*>(std::aligned_alloc(4096, kChunk));
      if (!bump) {
        end = nullptr;
        return nullptr;
      }
      end = bump + kChunk;
    }
    void* p = bump;
    bump += bytes;
    return p;
  }
  void give(void* p, size_t cls) {
    Block* b = static_cast<Block*>(p);
    b->next = free[cls];
    free[cls] = b;
  }
};
thread_local SmallPool t_small;

}  // namespace

std::string_view name_of(Tag tag) {
  constexpr std::string_view names[kNumTags] = {"parameter", "gradient", "optimizer", "activation", "data", "workspace"};
  return names[static_cast<int>(tag)];
}

Tag current_tag() { return t_tag; }
TagScope::TagScope(Tag tag) : previous_(t_tag) { t_tag = tag; }
TagScope::~TagScope() { t_tag = previous_; }

namespace {
struct Counters {
  std::mutex mutex;
  Stats s;
  std::multimap<size_t, void*> cached;
};
Counters& counters(DeviceType d) {
  static Counters c[kNumDeviceTypes];
  return c[static_cast<int>(d)];
}
size_t rounded(size_t n) { return n <= kSmall ? (n + kAlignment - 1) / kAlignment * kAlignment : (n + 4095) / 4096 * 4096; }
}  // namespace

void* allocate(Device device, size_t nbytes, Tag tag) {
  if (nbytes == 0) return nullptr;
  if (device.is_cpu() && nbytes <= kSmall) {
    void* p = t_small.take((nbytes - 1) / kAlignment);
    if (!p) throw MemoryError("allocate", cat("out of host memory asking for ", nbytes, " bytes"));
    return p;
  }
  const size_t bytes = rounded(nbytes);
  Counters& c = counters(device.type);
  std::lock_guard lock(c.mutex);
  void* p = nullptr;
  if (device.is_cpu()) {
    auto it = c.cached.lower_bound(bytes);
    if (it != c.cached.end() && it->first == bytes) {
      p = it->second;
      c.cached.erase(it);
    } else {
      p = std::aligned_alloc(4096, bytes);
      if (!p) throw MemoryError("allocate", cat("out of host memory asking for ", nbytes, " bytes"));
      c.s.reserved += static_cast<int64_t>(bytes);
    }
  } else if (device.is_cuda()) {
    throw DeviceError("allocate", "this build has no CUDA support");
  }
  c.s.live[static_cast<int>(tag)] += static_cast<int64_t>(bytes);
  c.s.live_total += static_cast<int64_t>(bytes);
  if (c.s.live_total > c.s.peak_total) {
    c.s.peak_total = c.s.live_total;
    std::copy(std::begin(c.s.live), std::end(c.s.live), std::begin(c.s.peak));
  }
  c.s.peak_reserved = std::max(c.s.peak_reserved, c.s.reserved);
  return p;
}

void deallocate(Device device, void* data, size_t nbytes, Tag tag) {
  if (nbytes == 0) return;
  if (device.is_cpu() && nbytes <= kSmall) return t_small.give(data, (nbytes - 1) / kAlignment);
  const size_t bytes = rounded(nbytes);
  Counters& c = counters(device.type);
  std::lock_guard lock(c.mutex);
  c.s.live[static_cast<int>(tag)] -= static_cast<int64_t>(bytes);
  c.s.live_total -= static_cast<int64_t>(bytes);
  if (device.is_cpu()) c.cached.emplace(bytes, data);
}

Stats stats(DeviceType device) {
  Counters& c = counters(device);
  std::lock_guard lock(c.mutex);
  return c.s;
}

void reset_peak(DeviceType device) {
  Counters& c = counters(device);
  std::lock_guard lock(c.mutex);
  c.s.peak_total = c.s.live_total;
  std::copy(std::begin(c.s.live), std::end(c.s.live), std::begin(c.s.peak));
  c.s.peak_reserved = c.s.reserved;
}

void release_cached() {
  Counters& c = counters(DeviceType::cpu);
  std::lock_guard lock(c.mutex);
  for (auto& [bytes, p] : c.cached) {
    std::free(p);
    c.s.reserved -= static_cast<int64_t>(bytes);
  }
  c.cached.clear();
}

int64_t set_limit(int64_t bytes) {
  static std::atomic<int64_t> limit{0};
  return limit.exchange(bytes);
}

}  // namespace strata::memory
