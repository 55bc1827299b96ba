#include "strata/memory/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/cuda/memory.h"
#include "strata/memory/bounds.h"
#include "strata/memory/heap.h"
#include "strata/memory/poison.h"
#include "strata/memory/report.h"
#include "strata/memory/retag.h"
#include "strata/memory/timeline.h"
#include "strata/memory/timeline_hooks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRATA_PLAIN_MALLOC 1  // every tensor its own malloc, so that the sanitizer sees its bounds and its end
#else
#define STRATA_PLAIN_MALLOC 0
#endif

namespace strata::memory {
namespace {

using detail::t_caller;

// "linear in blocks.3": who takes memory, as a string that blocks point to for as long as they live. The same few
// pairs come again and again, so each thread remembers the last ones.
const std::string* holder() {
  struct Known {
    const std::string_view* op;
    const std::string* module;
    const std::string* text;
  };
  static thread_local Known known[64];
  const auto [tag, op, module] = t_caller;
  if (!op && !module) return nullptr;
  const auto mix = reinterpret_cast<uintptr_t>(op) / 8 * 31 + reinterpret_cast<uintptr_t>(module) / 8;
  Known& k = known[(mix ^ mix >> 6 ^ mix >> 12) % 64];
  if (k.text && k.op == op && k.module == module) return k.text;
  static std::mutex mutex;
  static auto* names = new std::set<std::string>;
  std::lock_guard lock(mutex);
  k = {op, module, &*names->insert(!op ? *module : !module ? std::string(*op) : cat(*op, " in ", *module)).first};
  return k.text;
}

// Requests up to kSmall bytes come from thread-local free lists, one size class for each 64 bytes.
constexpr size_t kSmall = 4096;
constexpr size_t kClasses = kSmall / kAlignment;
constexpr size_t kChunk = size_t{1} << 18;
constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{1} << 21;

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

// What this process may use: the machine's memory, or a control group's share of it.
int64_t system_limit() {
  int64_t limit = std::numeric_limits<int64_t>::max();
  for (const Bound& b : host_bounds()) limit = std::min(limit, b.limit);
  return limit;
}

struct Pool {
  std::mutex mutex;
  Heap heap;
  Stats s;
  std::byte* base = nullptr;  // of the reserved address range; nullptr for meta and before the first request
  int64_t range = 0;
#if STRATA_PLAIN_MALLOC
  std::unordered_map<void*, int64_t> plain;  // the places in `heap`, which then only counts
#endif
};
Pool& pool(DeviceType d) {
  static Pool* pools = new Pool[kNumDeviceTypes];  // outlives every static tensor
  return pools[static_cast<int>(d)];
}
std::atomic<int64_t> g_limit{0};

// Where place() put a block.
int64_t offset_of(const Pool& p, Device device, void* block) {
  if (device.is_meta()) return static_cast<int64_t>(reinterpret_cast<uintptr_t>(block)) - 1;
#if STRATA_PLAIN_MALLOC
  return p.plain.at(block);
#else
  return static_cast<std::byte*>(block) - p.base;
#endif
}

[[maybe_unused]] void reserve_range(Pool& p) {
  for (int64_t bytes = int64_t{1} << 42; bytes >= (int64_t{1} << 30); bytes /= 2) {
    void* m = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) continue;
    const auto start = (reinterpret_cast<uintptr_t>(m) + kHugePage - 1) / kHugePage * kHugePage;
    p.base = reinterpret_cast<std::byte*>(start);
    p.range = bytes - kHugePage;
    // Fewer page faults and TLB misses; a refusal changes nothing but speed.
    madvise(p.base, static_cast<size_t>(p.range), MADV_HUGEPAGE);
    return;
  }
  throw MemoryError("allocate", "the system refuses to reserve address space for tensors (see ulimit -v)");
}

std::atomic<int> g_poison{-1};

void* poisoned(void* block, int64_t bytes) {
  const int pattern = g_poison.load(std::memory_order_relaxed);
  if (pattern >= 0) [[unlikely]]
    std::memset(block, pattern, static_cast<size_t>(bytes));
  return block;
}

int64_t rounded(size_t nbytes) {
  const int64_t unit = nbytes <= kSmall ? static_cast<int64_t>(kAlignment) : kPage;
  return (static_cast<int64_t>(nbytes) + unit - 1) / unit * unit;
}

void count(Pool& p, int64_t bytes, Tag tag) {
  p.s.live[static_cast<int>(tag)] += bytes;
  p.s.live_total += bytes;
  ++p.s.blocks;
  ++p.s.allocations;
  if (p.s.live_total > p.s.peak_total) {
    p.s.peak_total = p.s.live_total;
    std::copy(std::begin(p.s.live), std::end(p.s.live), std::begin(p.s.peak));
  }
}

}  // namespace

std::string_view name_of(Tag tag) {
  constexpr std::string_view names[kNumTags] = {"parameter",  "gradient", "optimizer",
                                                "activation", "data",     "workspace"};
  return names[static_cast<int>(tag)];
}

const std::string* detail::module_name(std::string_view name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string, std::less<>>();  // blocks point into it for as long as they live
  std::lock_guard lock(mutex);
  auto it = names->find(name);
  if (it == names->end()) it = names->emplace(name).first;
  return &*it;
}

ModuleScope::ModuleScope(std::string_view name) : previous_(t_caller.module) {
  t_caller.module = detail::module_name(name);
}
ModuleScope::~ModuleScope() {
  t_caller.module = previous_;
}

void* allocate(Device device, size_t nbytes, Tag tag) {
  if (nbytes == 0) return nullptr;
  if (device.is_cuda()) {
    const std::string* who = holder();
    void* block = cuda::allocate(device, nbytes, tag, who);
    if (is_recording()) [[unlikely]]
      record_taken(device, block, nbytes, tag, who);
    const int pattern = g_poison.load(std::memory_order_relaxed);
    if (pattern >= 0) [[unlikely]]
      cuda::fill_bytes(device, block, static_cast<uint8_t>(pattern), nbytes);
    return block;
  }
  if (device.is_cpu() && nbytes <= kSmall && !STRATA_PLAIN_MALLOC) {
    void* small = t_small.take((nbytes - 1) / kAlignment);
    check<MemoryError>(small != nullptr, "allocate", "out of host memory asking for ", nbytes, " bytes");
    return poisoned(small, rounded(nbytes));
  }
  // A dry run may ask for more than the heap's offsets can say.
  constexpr int64_t kMostOffsets = (int64_t{1} << 62) - kPage;
  const int64_t bytes = rounded(std::min(nbytes, static_cast<size_t>(kMostOffsets) + 1));
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  int64_t limit = g_limit.load(std::memory_order_relaxed);
  if (device.is_cpu()) {
    static int64_t machine = system_limit();
    if (limit == 0) {
      if (p.s.live_total + bytes > machine) machine = system_limit();  // memory may have been added since
      limit = machine;
    }
    if (p.s.live_total + bytes > limit)
      refuse(p.s, std::array{static_cast<const Heap*>(&p.heap)}, bytes, limit, tag, "host");
#if !STRATA_PLAIN_MALLOC
    if (!p.base) reserve_range(p);
    if (p.heap.top_after(bytes) > p.range)
      refuse(p.s, std::array{static_cast<const Heap*>(&p.heap)}, bytes, p.range, tag, "host");
#endif
  }
  if (!device.is_cpu() && p.heap.top_after(bytes) > kMostOffsets)
    refuse(p.s, std::array{static_cast<const Heap*>(&p.heap)}, bytes, kMostOffsets, tag, "meta");
#if STRATA_PLAIN_MALLOC
  void* plain = device.is_cpu() ? std::aligned_alloc(kAlignment, static_cast<size_t>(bytes)) : nullptr;
  check<MemoryError>(plain != nullptr || !device.is_cpu(), "allocate", "out of host memory asking for ", nbytes,
                     " bytes");
#endif
  const std::string* who = holder();
  const int64_t offset = p.heap.place(bytes, tag, who);
  count(p, bytes, tag);
  p.s.reserved = p.heap.top();
  p.s.peak_reserved = std::max(p.s.peak_reserved, p.s.reserved);
#if STRATA_PLAIN_MALLOC
  if (device.is_cpu()) {
    p.plain.emplace(plain, offset);
    if (is_recording()) [[unlikely]]
      record_taken(device, plain, static_cast<size_t>(bytes), tag, who);
    return poisoned(plain, bytes);
  }
#endif
  // A meta block is known by its offset, which must not look like a null pointer.
  void* block = device.is_cpu() ? p.base + offset : reinterpret_cast<void*>(offset + 1);
  if (is_recording()) [[unlikely]]
    record_taken(device, block, static_cast<size_t>(bytes), tag, who);
  return device.is_cpu() ? poisoned(block, bytes) : block;
}

void deallocate(Device device, void* block, size_t nbytes, Tag tag) {
  if (nbytes == 0) return;
  if (is_recording()) [[unlikely]]
    record_given(device, block);
  if (device.is_cuda()) return cuda::deallocate(device, block, nbytes, tag);
  if (device.is_cpu() && nbytes <= kSmall && !STRATA_PLAIN_MALLOC)
    return t_small.give(block, (nbytes - 1) / kAlignment);
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  const int64_t bytes = rounded(nbytes);
  p.s.live[static_cast<int>(tag)] -= bytes;
  p.s.live_total -= bytes;
  --p.s.blocks;
  p.heap.remove(offset_of(p, device, block));
#if STRATA_PLAIN_MALLOC
  if (device.is_cpu()) {
    p.plain.erase(block);
    std::free(block);
  }
#endif
}

PoisonScope::PoisonScope(uint8_t pattern) : previous_(g_poison.exchange(pattern)) {}
PoisonScope::~PoisonScope() {
  g_poison.store(previous_);
}

namespace {
std::atomic<int> g_guards{0};
}
GuardScope::GuardScope() {
  ++g_guards;
}
GuardScope::~GuardScope() {
  --g_guards;
}
bool guards_wanted() {
  return g_guards.load(std::memory_order_relaxed) > 0;
}

size_t block_size(size_t nbytes) {
  return static_cast<size_t>(rounded(nbytes));
}

Stats stats(DeviceType device) {
  return stats(Device{device, 0});
}
void reset_peak(DeviceType device) {
  reset_peak(Device{device, 0});
}

Stats stats(Device device) {
  if (device.is_cuda()) return cuda::stats(device.index);
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  return p.s;
}

void reset_peak(Device device) {
  if (device.is_cuda()) return cuda::reset_peak(device.index);
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  p.s.peak_total = p.s.live_total;
  std::copy(std::begin(p.s.live), std::end(p.s.live), std::begin(p.s.peak));
  // Host pages stay resident; a dry run starts from what is in use.
  if (device.is_meta()) {
    p.heap.trim();
    p.s.reserved = p.heap.top();
  }
  p.s.peak_reserved = p.s.reserved;
}

void release_cached() {
  cuda::release_cached();
  Pool& p = pool(DeviceType::cpu);
  std::lock_guard lock(p.mutex);
  if (!p.base) return;
  for (const auto& [offset, bytes] : p.heap.holes())
    madvise(p.base + offset, static_cast<size_t>(bytes), MADV_DONTNEED);
}

void retag(Device device, void* block, size_t nbytes, Tag from, Tag to) {
  if (nbytes == 0 || from == to) return;
  if (is_recording()) [[unlikely]]
    record_retagged(device, block, to);
  if (device.is_cuda()) return cuda::retag(device, block, nbytes, from, to);
  if (device.is_cpu() && nbytes <= kSmall && !STRATA_PLAIN_MALLOC) return;  // not counted
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  const int64_t bytes = rounded(nbytes);
  p.s.live[static_cast<int>(from)] -= bytes;
  p.s.live[static_cast<int>(to)] += bytes;
  p.heap.retag(offset_of(p, device, block), to);
}

std::vector<BlockInfo> blocks(Device device) {
  if (device.is_cuda()) return cuda::blocks(device.index);
  std::vector<BlockInfo> all;
  Pool& p = pool(device.type);
  std::lock_guard lock(p.mutex);
  // A meta block's address is its offset and one more.
  const auto base = device.is_cpu() ? reinterpret_cast<uintptr_t>(p.base) : uintptr_t{1};
  for (const auto& [offset, b] : p.heap.used())
    all.push_back({base + static_cast<uintptr_t>(offset), b.bytes, b.tag, b.module ? *b.module : std::string()});
#if STRATA_PLAIN_MALLOC
  if (device.is_cpu()) {
    std::unordered_map<int64_t, uintptr_t> at;
    for (const auto& [address, offset] : p.plain) at[offset] = reinterpret_cast<uintptr_t>(address);
    for (BlockInfo& b : all) b.address = at.at(static_cast<int64_t>(b.address - base));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  }
#endif
  return all;
}

int64_t set_limit(int64_t bytes) {
  check(bytes >= 0, "set_limit", "needs a number of bytes, or 0 for the machine's own limit; got ", bytes);
  return g_limit.exchange(bytes);
}

}  // namespace strata::memory
