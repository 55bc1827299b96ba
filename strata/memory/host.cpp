// The memory that every program has: the host's heap, and the dry run's, which counts the same requests.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/memory/bounds.h"
#include "strata/memory/heap.h"
#include "strata/memory/homed.h"
#include "strata/memory/ledger.h"
#include "strata/memory/poison.h"
#include "strata/memory/pressure.h"
#include "strata/memory/report.h"
#include "strata/memory/timeline.h"
#include "strata/memory/timeline_hooks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRATA_PLAIN_MALLOC 1  // every tensor its own malloc, so that the sanitizer sees its bounds and its end
#else
#define STRATA_PLAIN_MALLOC 0
#endif

namespace strata::memory {
namespace {

// Requests up to kSmall bytes come from thread-local free lists, one size class for each 64 bytes.
constexpr size_t kSmall = 4096;
constexpr size_t kClasses = kSmall / kAlignment;
constexpr size_t kChunk = size_t{1} << 18;
constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{1} << 21;
// Of addresses for tensors; and what ulimit -v has to leave for all else, threads and generated code, which ends the
// process where it finds none.
constexpr int64_t kLeastRange = int64_t{1} << 26, kBeside = int64_t{1} << 28;

struct SmallBlock {
  SmallBlock* next;
};

struct FreeList {
  SmallBlock* head = nullptr;
  size_t count = 0;

  void push(void* p) {
    SmallBlock* b = static_cast<SmallBlock*>(p);
    b->next = head;
    head = b;
    ++count;
  }
  void* pop() {
    SmallBlock* b = head;
    head = b->next;
    --count;
    return b;
  }
};

// The unused end of a chunk.
struct Bump {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  size_t left() const { return static_cast<size_t>(end - begin); }
};

// What exited threads, and threads that free what others allocate, leave for everyone. Blocks may outlive the thread
// that made them, so chunks are never returned to the system.
struct Depot {
  std::mutex mutex;
  std::vector<FreeList> lists[kClasses];
  std::vector<Bump> bumps;  // each has room for a block of any class
};
Depot& depot() {
  static Depot* d = new Depot;  // outlives every thread and every static tensor
  return *d;
}

struct SmallPool {
  // A list of twice this is halved: freeing a whole graph and building it again seldom meets the depot.
  static constexpr size_t kKeptBytes = size_t{1} << 19;
  enum State : char { unwatched, open, closed };

  FreeList free[kClasses];
  Bump bump;
  State state = unwatched;  // open: the thread's end will close the pool; closed: it keeps nothing any more

  void* take(size_t cls) { return free[cls].head ? free[cls].pop() : refill(cls); }
  void give(void* p, size_t cls) {
    free[cls].push(p);
    if (free[cls].count * block_bytes(cls) >= 2 * kKeptBytes || state != open) [[unlikely]]
      settle(cls);
  }
  void close();

 private:
  static size_t block_bytes(size_t cls) { return (cls + 1) * kAlignment; }
  void watch();
  void* refill(size_t cls);
  void settle(size_t cls);
};
constinit thread_local SmallPool t_small;

struct CloseAtThreadExit {
  ~CloseAtThreadExit() { t_small.close(); }
};

void SmallPool::watch() {
  if (state != unwatched) return;
  state = open;
  static thread_local CloseAtThreadExit at_exit;
  static_cast<void>(&at_exit);
}

void* SmallPool::refill(size_t cls) {
  watch();
  const size_t bytes = block_bytes(cls);
  if (bump.left() < bytes) {
    Depot& d = depot();
    std::lock_guard lock(d.mutex);
    if (!d.lists[cls].empty()) {
      FreeList& list = d.lists[cls].back();
      void* p = list.pop();
      if (state == open) free[cls] = std::exchange(list, {});
      if (!list.head) d.lists[cls].pop_back();
      return p;
    }
    if (!d.bumps.empty()) {
      bump = d.bumps.back();
      d.bumps.pop_back();
    } else {
      auto* chunk = static_cast<std::byte*>(std::aligned_alloc(4096, kChunk));
      if (!chunk) return nullptr;
      bump = {chunk, chunk + kChunk};
    }
  }
  void* p = bump.begin;
  bump.begin += bytes;
  if (state == closed) close();
  return p;
}

void SmallPool::settle(size_t cls) {
  watch();
  // Destructors of an ending thread may run after the pool's own.
  if (state == closed) return close();
  if (free[cls].count * block_bytes(cls) < 2 * kKeptBytes) return;
  FreeList surplus;
  while (free[cls].count * block_bytes(cls) > kKeptBytes) surplus.push(free[cls].pop());
  Depot& d = depot();
  std::lock_guard lock(d.mutex);
  d.lists[cls].push_back(surplus);
}

void SmallPool::close() {
  state = closed;
  Depot& d = depot();
  std::lock_guard lock(d.mutex);
  for (size_t cls = 0; cls < kClasses; ++cls)
    if (free[cls].head) d.lists[cls].push_back(std::exchange(free[cls], {}));
  if (bump.left() >= kSmall) d.bumps.push_back(bump);
  bump = {};
}

void* poisoned(void* block, int64_t bytes) {
  const int pattern = poison_pattern();
  if (pattern >= 0) [[unlikely]]
    std::memset(block, pattern, static_cast<size_t>(bytes));
  return block;
}

int64_t rounded(size_t nbytes) {
  const int64_t unit = nbytes <= kSmall ? static_cast<int64_t>(kAlignment) : kPage;
  return (static_cast<int64_t>(nbytes) + unit - 1) / unit * unit;
}

// Blocks of one heap, and what is counted of them.
class HeapMemory : public Backend {
 public:
  using Backend::Backend;

  void retag(Device d, void* block, size_t nbytes, Tag from, Tag to) override {
    if (is_recording()) [[unlikely]]
      record_retagged(d, tier, block, to);
    const std::lock_guard lock(mutex_);
    accounts_.retag(rounded(nbytes), from, to);
    const Place at = place_of(block);
    at.heap.retag(at.offset, to);
  }
  Stats stats(Device) override {
    const std::lock_guard lock(mutex_);
    return accounts_.s;
  }
  std::vector<BlockInfo> blocks(Device) override {
    const std::lock_guard lock(mutex_);
    return list();
  }

 protected:
  struct Place {
    Heap& heap;
    int64_t offset;
  };
  virtual Place place_of(void* block) = 0;
  virtual std::vector<BlockInfo> list() const = 0;
  // Bytes of the range that were touched.
  virtual int64_t reserved() const { return heap_.top(); }

  [[noreturn]] void refuse_block(int64_t bytes, int64_t limit, Tag tag) const {
    refuse(accounts_.s, list(), bytes, limit, tag, name);
  }
  int64_t place(Heap& heap, int64_t bytes, Tag tag, const std::string* who) {
    const int64_t offset = heap.place(bytes, tag, who);
    accounts_.take(bytes, tag);
    accounts_.reserve(reserved());
    return offset;
  }
  void remove(void* block, size_t nbytes, Tag tag) {
    accounts_.give(rounded(nbytes), tag);
    const Place at = place_of(block);
    at.heap.remove(at.offset);
  }

  std::mutex mutex_;
  Heap heap_;
  Accounts accounts_;
};

class HostMemory final : public HeapMemory {
 public:
  HostMemory() : HeapMemory("host", DeviceType::cpu, Tier::host, Bytes::fixed) {}

  void* allocate(Device d, size_t nbytes, Tag tag) override {
    if (nbytes <= kSmall && !STRATA_PLAIN_MALLOC) {
      void* small = t_small.take((nbytes - 1) / kAlignment);
      check<MemoryError>(small != nullptr, "allocate", "out of host memory asking for ", nbytes, " bytes");
      return poisoned(small, rounded(nbytes));
    }
    const int64_t bytes = rounded(std::min(nbytes, static_cast<size_t>(int64_t{1} << 62)));
    std::unique_lock lock(mutex_);
    int64_t most = limit(bytes);
    while (accounts_.s.live_total + bytes > most) {
      const int64_t missing = accounts_.s.live_total + bytes - most;
      lock.unlock();
      const bool given = relieve(d, missing);
      lock.lock();
      most = limit(bytes);
      if (!given && accounts_.s.live_total + bytes > most) refuse_block(bytes, most, tag);
    }
#if STRATA_PLAIN_MALLOC
    void* block = std::aligned_alloc(kAlignment, static_cast<size_t>(bytes));
    check<MemoryError>(block != nullptr, "allocate", "out of host memory asking for ", nbytes, " bytes");
#else
    if (!base_) reserve_range();
    if (heap_.top_after(bytes) > range_) refuse_block(bytes, range_, tag);
#endif
    const std::string* who = holder();
    const int64_t offset = place(heap_, bytes, tag, who);
#if STRATA_PLAIN_MALLOC
    plain_.emplace(block, offset);
#else
    void* block = base_ + offset;
#endif
    if (is_recording()) [[unlikely]]
      record_taken(d, tier, block, static_cast<size_t>(bytes), tag, who);
    return poisoned(block, bytes);
  }

  void deallocate(Device d, void* block, size_t nbytes, Tag tag) override {
    if (is_recording()) [[unlikely]]
      record_given(d, tier, block);
    if (nbytes <= kSmall && !STRATA_PLAIN_MALLOC) return t_small.give(block, (nbytes - 1) / kAlignment);
    const std::lock_guard lock(mutex_);
    remove(block, nbytes, tag);
#if STRATA_PLAIN_MALLOC
    plain_.erase(block);
    std::free(block);
#endif
  }

  void retag(Device d, void* block, size_t nbytes, Tag from, Tag to) override {
    if (nbytes <= kSmall && !STRATA_PLAIN_MALLOC) return;  // not counted
    HeapMemory::retag(d, block, nbytes, from, to);
  }

  Bound bound(Device d) override {
    std::vector<Bound> all = host_bounds();
    const int64_t reserved = stats(d).reserved;
    // Of the address space tensors have what was set aside for them, and nothing else; before, what would be.
    const std::lock_guard lock(mutex_);
    for (Bound& b : all)
      if (b.name == kAddressSpace) b.used = base_ ? b.limit - (range_ - reserved) : std::min(b.limit, b.used + kBeside);
    if (const int64_t limit = limit_.load(std::memory_order_relaxed); limit > 0)
      all.push_back({"the limit on tensors", limit, reserved});
    return *std::min_element(all.begin(), all.end(),
                             [](const Bound& a, const Bound& b) { return a.free() < b.free(); });
  }
  int64_t set_limit(Device, int64_t bytes) override {
    check(bytes >= 0, "set_limit", "needs a number of bytes, or 0 for the machine's own limit; got ", bytes);
    return limit_.exchange(bytes);
  }
  // Host pages stay resident.
  void reset_peak(Device) override {
    const std::lock_guard lock(mutex_);
    accounts_.reset_peak();
  }
  void release_cached() override {
    const std::lock_guard lock(mutex_);
    if (!base_) return;
    for (const auto& [offset, bytes] : heap_.holes())
      madvise(base_ + offset, static_cast<size_t>(bytes), MADV_DONTNEED);
  }

 private:
  // What this process may use: the machine's memory, or a control group's share of it.
  static int64_t system_limit() {
    int64_t limit = std::numeric_limits<int64_t>::max();
    for (const Bound& b : host_bounds()) limit = std::min(limit, b.limit);
    return limit;
  }
  int64_t limit(int64_t bytes) const {
    static int64_t machine = system_limit();
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    if (limit != 0) return limit;
    if (accounts_.s.live_total + bytes > machine) machine = system_limit();  // memory may have been added since
    return machine;
  }

  [[maybe_unused]] void reserve_range() {
    int64_t most = int64_t{1} << 42;
    for (const Bound& b : host_bounds())
      if (b.name == kAddressSpace) most = std::min(most, (b.free() - kBeside) / kHugePage * kHugePage);
    for (int64_t bytes = most; bytes >= kLeastRange; bytes /= 2) {
      void* m = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (m == MAP_FAILED) continue;
      const auto start = (reinterpret_cast<uintptr_t>(m) + kHugePage - 1) / kHugePage * kHugePage;
      base_ = reinterpret_cast<std::byte*>(start);
      range_ = bytes - kHugePage;
      // Fewer page faults and TLB misses; a refusal changes nothing but speed.
      madvise(base_, static_cast<size_t>(range_), MADV_HUGEPAGE);
      return;
    }
    throw MemoryError("allocate", "the system refuses to reserve address space for tensors (see ulimit -v)");
  }

  Place place_of(void* block) override {
#if STRATA_PLAIN_MALLOC
    return {heap_, plain_.at(block)};
#else
    return {heap_, static_cast<std::byte*>(block) - base_};
#endif
  }
  std::vector<BlockInfo> list() const override {
    std::vector<BlockInfo> all;
    heap_.list(reinterpret_cast<uintptr_t>(base_), all);
#if STRATA_PLAIN_MALLOC
    std::unordered_map<int64_t, uintptr_t> at;
    for (const auto& [address, offset] : plain_) at[offset] = reinterpret_cast<uintptr_t>(address);
    for (BlockInfo& b : all) b.address = at.at(static_cast<int64_t>(b.address));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
#endif
    return all;
  }

  std::byte* base_ = nullptr;  // of the reserved address range; nullptr before the first request
  int64_t range_ = 0;
  std::atomic<int64_t> limit_{0};
#if STRATA_PLAIN_MALLOC
  std::unordered_map<void*, int64_t> plain_;  // the places in heap_, which then only counts
#endif
};

// A block is known by its offset, and one more: it must not look like a null pointer. Small blocks have a range of their
// own, as on the host: they would lie between others and keep their holes apart.
class DryMemory final : public HeapMemory {
 public:
  DryMemory() : HeapMemory("meta", DeviceType::meta, Tier::meta, Bytes::none) {}

  void* allocate(Device d, size_t nbytes, Tag tag) override {
    // A dry run may ask for more than the heap's offsets can say.
    constexpr int64_t kMostOffsets = kSmallRange - kPage;
    const int64_t bytes = rounded(std::min(nbytes, static_cast<size_t>(kMostOffsets) + 1));
    const bool small = nbytes <= kSmall;
    Heap& heap = small ? small_ : heap_;
    const std::lock_guard lock(mutex_);
    if (heap.top_after(bytes) > kMostOffsets) refuse_block(bytes, kMostOffsets, tag);
    const std::string* who = holder();
    void* block = reinterpret_cast<void*>(place(heap, bytes, tag, who) + (small ? kSmallRange : 0) + 1);
    if (is_recording()) [[unlikely]]
      record_taken(d, tier, block, static_cast<size_t>(bytes), tag, who);
    return block;
  }
  void deallocate(Device d, void* block, size_t nbytes, Tag tag) override {
    if (is_recording()) [[unlikely]]
      record_given(d, tier, block);
    const std::lock_guard lock(mutex_);
    remove(block, nbytes, tag);
  }
  void copy_in(Device, void*, const void*, size_t) override {}
  void copy_out(Device, void*, const void*, size_t) override {}

  Bound bound(Device) override { return {"nothing", std::numeric_limits<int64_t>::max(), 0}; }
  // A dry run starts from what is in use.
  void reset_peak(Device) override {
    const std::lock_guard lock(mutex_);
    heap_.trim();
    small_.trim();
    accounts_.s.reserved = reserved();
    accounts_.reset_peak();
  }

 private:
  static constexpr int64_t kSmallRange = int64_t{1} << 62;  // where it begins

  Place place_of(void* block) override {
    const int64_t at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block)) - 1;
    return at < kSmallRange ? Place{heap_, at} : Place{small_, at - kSmallRange};
  }
  std::vector<BlockInfo> list() const override {
    std::vector<BlockInfo> all;
    heap_.list(1, all);
    small_.list(static_cast<uintptr_t>(kSmallRange) + 1, all);
    return all;
  }
  int64_t reserved() const override { return heap_.top() + small_.top(); }

  Heap small_;
};

}  // namespace

void detail::register_builtin_backends() {
  static const bool done = [] {
    register_backend(*new HostMemory);  // they outlive every static tensor
    register_backend(*new DryMemory);
    register_backend(detail::host_disk_memory());
    return true;
  }();
  static_cast<void>(done);
}

size_t block_size(size_t nbytes) {
  return static_cast<size_t>(rounded(nbytes));
}

}  // namespace strata::memory
