#include "strata/cuda/memory.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "strata/core/once.h"
#include "strata/core/tensor.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory_inl.cuh"
#include "strata/cuda/page_locked.h"
#include "strata/memory/heap.h"
#include "strata/memory/ledger.h"
#include "strata/memory/poison.h"
#include "strata/memory/pressure.h"
#include "strata/memory/report.h"
#include "strata/memory/room_costs_inl.h"
#include "strata/memory/tiers.h"
#include "strata/memory/timeline.h"
#include "strata/memory/timeline_hooks.h"
#include "strata/memory/transfers.h"

namespace strata::cuda {
namespace {
using memory::BlockInfo;
using memory::Bound;
using memory::Heap;
using memory::Stats;
using memory::Tag;

constexpr int64_t kUnit = 512;            // blocks are multiples of this, as cudaMalloc's alignment is
constexpr int64_t kChunk = 2 << 20;       // physical memory is mapped in multiples of this size, the least of the card
constexpr int64_t kPiece = 16;            // chunks of one piece at most, which is three calls of the driver
constexpr int64_t kUnmapped = 256 << 20;  // of holes at least, when a request finds no room
constexpr int64_t kQuick = 64 << 10;      // blocks up to here are kept in lists by size when given back
constexpr size_t kQuickClasses = kQuick / kUnit;

int64_t rounded(size_t nbytes) {
  return (static_cast<int64_t>(nbytes) + kUnit - 1) / kUnit * kUnit;
}

// Heaps are found by the stream that their blocks belong to and, for graphs, the pool. The heaps of a released pool are
// nobody's: they lose their memory as holes appear.
constexpr int kNobody = -1;
int heap_key(int pool, int stream) {
  return pool * 64 + stream;
}

// The blocks of one stream.
struct StreamHeap {
  int key = 0;
  std::optional<Stream> stream;
  CUdeviceptr base = 0;
  int64_t range = 0;
  Heap heap;
  std::vector<CUmemGenericAllocationHandle> chunks;  // of the piece of each chunk; 0 where nothing is mapped
  std::vector<int64_t> quick[kQuickClasses];         // offsets of free small blocks, still "used" in the heap

  int pool() const { return key < 0 ? 0 : key / 64; }
  int64_t mapped_bytes() const {
    return kChunk * std::count_if(chunks.begin(), chunks.end(), [](auto c) { return c != 0; });
  }
  bool holds(CUdeviceptr p) const { return p >= base && p < base + static_cast<CUdeviceptr>(range); }
};

// Counts what mapping and unmapping takes, from here to the end of the scope.
class MappingTime {
 public:
  explicit MappingTime(const int64_t& mapped) : mapped_(mapped), before_(mapped), begin_(memory::host_seconds()) {}
  ~MappingTime() {
    const int64_t more = mapped_ - before_;
    memory::count_mapped(std::max<int64_t>(more, 0), std::max<int64_t>(-more, 0), memory::host_seconds() - begin_);
  }
  MappingTime(const MappingTime&) = delete;

 private:
  const int64_t& mapped_;
  const int64_t before_;
  const double begin_;
};

// A block given back that other streams may still use.
struct Pending {
  void* data = nullptr;
  int64_t bytes = 0;
  std::vector<std::unique_ptr<Event>> passed;
};

struct DeviceMemory {
  int device = 0;
  std::mutex mutex;
  std::vector<std::unique_ptr<StreamHeap>> heaps;
  std::unordered_map<void*, std::vector<Stream>> used_elsewhere;
  std::vector<Pending> pending;
  memory::Accounts accounts;
  int64_t mapped = 0, total = 0;
  int pools = 0;  // made so far
  double fraction = 0.97;
  int64_t most = 0;  // set_limit()

  int64_t limit() const {
    const auto share = static_cast<int64_t>(fraction * static_cast<double>(total));
    return most > 0 ? std::min(most, share) : share;
  }

  StreamHeap& heap_of(int pool, const Stream& stream) {
    const int key = heap_key(pool, stream.id());
    for (const auto& h : heaps) {
      if (h->key == key) return *h;
    }
    if (total == 0) total = properties(device).memory_bytes;
    auto h = std::make_unique<StreamHeap>();
    h->key = key;
    h->stream = stream;
    h->range = (2 * total / kChunk + 1) * kChunk;  // address space is free; holes may spread it
    check_driver(driver().mem_address_reserve(&h->base, static_cast<size_t>(h->range), 0, 0, 0), "allocate",
                 "reserving address space");
    h->chunks.assign(static_cast<size_t>(h->range / kChunk), 0);
    heaps.push_back(std::move(h));
    return *heaps.back();
  }
  StreamHeap& heap_with(void* data) {
    for (const auto& h : heaps) {
      if (h->holds(reinterpret_cast<CUdeviceptr>(data))) return *h;
    }
    throw MemoryError("deallocate", "the pointer is not from this device's allocator");
  }

  // Backs [offset, offset + bytes) with physical memory; false when the card or the limit has no more. Where the limit
  // has not enough for all of it nothing is mapped.
  bool map(StreamHeap& h, int64_t offset, int64_t bytes) {
    const CUmemAllocationProp prop{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access{.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const int64_t last = (offset + bytes - 1) / kChunk;
    const auto at = [&](int64_t chunk) { return h.base + static_cast<CUdeviceptr>(chunk * kChunk); };
    const auto lacks = [&](int64_t c) { return c <= last && h.chunks[static_cast<size_t>(c)] == 0; };
    // A chunk that neighbours share is a piece of its own: it would keep the others mapped as long as they live.
    const int64_t whole = (offset + kChunk - 1) / kChunk, past = (offset + bytes) / kChunk;
    const auto past_of = [&](int64_t c) { return c >= whole && c < past ? past : c + 1; };
    const int64_t lacking = std::count(h.chunks.begin() + offset / kChunk, h.chunks.begin() + last + 1, 0ULL);
    if (lacking > 0 && mapped + lacking * kChunk > limit()) return false;
    bool enough = true;
    std::optional<MappingTime> time;
    for (int64_t c = offset / kChunk; c <= last && enough; ++c) {
      if (!lacks(c)) continue;
      const strata::detail::OnceScope once("memory");
      if (!time) time.emplace(mapped);
      const int64_t begin = c;
      while (enough && lacks(c)) {
        int64_t n = 1;
        while (n < kPiece && c + n < past_of(c) && lacks(c + n)) ++n;
        CUmemGenericAllocationHandle handle = 0;
        const auto create = [&] {
          return mapped + n * kChunk > limit()
                     ? CUDA_ERROR_OUT_OF_MEMORY
                     : driver().mem_create(&handle, static_cast<size_t>(n * kChunk), &prop, 0);
        };
        CUresult e = create();
        for (; e == CUDA_ERROR_OUT_OF_MEMORY && n > 1; e = create()) n /= 2;
        enough = e != CUDA_ERROR_OUT_OF_MEMORY;
        if (!enough) break;
        check_driver(e, "allocate", "cuMemCreate");
        check_driver(driver().mem_map(at(c), static_cast<size_t>(n * kChunk), 0, handle, 0), "allocate", "cuMemMap");
        std::fill_n(h.chunks.begin() + c, n, handle);
        mapped += n * kChunk;
        c += n;
      }
      // A run of pieces gets access at once.
      if (c > begin)
        check_driver(driver().mem_set_access(at(begin), static_cast<size_t>((c - begin) * kChunk), &access, 1),
                     "allocate", "cuMemSetAccess");
    }
    return enough;
  }

  void flush_quick(StreamHeap& h) {
    for (auto& list : h.quick) {
      for (int64_t offset : list) h.heap.remove(offset);
      list.clear();
    }
  }
  // Unmaps chunks that lie in holes, but those of pools, which replays use: those of other heaps than `for_key` first,
  // and no more than `enough` bytes, because what is unmapped in vain is mapped again. The device may still run kernels
  // that used them: waits for it first, which must not be while a graph is captured.
  void unmap_holes(int64_t enough = std::numeric_limits<int64_t>::max(), int for_key = kNobody) {
    if (captures_in_progress() > 0) return;
    const DeviceScope scope(device);
    const MappingTime time(mapped);
    check_cuda(cudaDeviceSynchronize(), "allocate", "an earlier kernel");
    const int64_t least = mapped - std::min(mapped, enough);
    std::vector<StreamHeap*> order;
    for (const bool own : {false, true})
      for (const auto& h : heaps)
        if (h->pool() == 0 && (h->key == for_key) == own) order.push_back(h.get());
    for (StreamHeap* h : order) {
      if (mapped <= least) break;
      flush_quick(*h);
      h->heap.trim();
      // Pieces that lie in [begin, end) as a whole: the driver unmaps no part of one.
      const auto drop = [&](int64_t begin, int64_t end) {
        const auto handle = [&](int64_t c) -> CUmemGenericAllocationHandle& {
          return h->chunks[static_cast<size_t>(c)];
        };
        const int64_t past = end / kChunk;
        int64_t c = (begin + kChunk - 1) / kChunk;
        while (c > 0 && c < past && handle(c) != 0 && handle(c) == handle(c - 1)) ++c;
        while (c < past && mapped > least) {
          const CUmemGenericAllocationHandle piece = handle(c);
          int64_t next = c + 1;
          while (next < static_cast<int64_t>(h->chunks.size()) && handle(next) == piece) ++next;
          if (piece != 0 && next <= past) {
            const auto bytes = static_cast<size_t>((next - c) * kChunk);
            check_driver(driver().mem_unmap(h->base + static_cast<CUdeviceptr>(c * kChunk), bytes), "release_cached",
                         "cuMemUnmap");
            check_driver(driver().mem_release(piece), "release_cached", "cuMemRelease");
            std::fill_n(h->chunks.begin() + c, next - c, 0);
            mapped -= static_cast<int64_t>(bytes);
          }
          c = next;
        }
      };
      for (const auto& [offset, bytes] : h->heap.holes()) drop(offset, offset + bytes);
      drop(h->heap.top(), h->range);
    }
    std::erase_if(heaps, [](const auto& h) {
      if (h->key != kNobody || !h->heap.used().empty()) return false;
      driver().mem_address_free(h->base, static_cast<size_t>(h->range));
      return true;
    });
    accounts.s.reserved = mapped;
  }

  // Takes back blocks whose other streams have passed; with `wait`, all of them.
  void take_back(bool wait) {
    for (size_t i = 0; i < pending.size();) {
      Pending& p = pending[i];
      const bool done = std::all_of(p.passed.begin(), p.passed.end(), [&](const auto& e) {
        if (wait) e->synchronize();
        return e->query();
      });
      if (!done) {
        ++i;
        continue;
      }
      give(p.data, p.bytes);
      pending.erase(pending.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  // The block that has waited longest for other streams goes back to its heap: the heap's stream waits for them, not the
  // host, which would stand still until the card is done with all that it was given. False where there is none.
  bool order_back() {
    if (pending.empty() || captures_in_progress() > 0) return false;
    const Pending p = std::move(pending.front());
    pending.erase(pending.begin());
    const StreamHeap& h = heap_with(p.data);
    // A pool's blocks are replays' next, on whichever stream those are.
    const bool ordered = h.key != kNobody && h.pool() == 0;
    for (const auto& e : p.passed) ordered ? e->wait(*h.stream) : e->synchronize();
    give(p.data, p.bytes);
    return true;
  }

  void* try_take(StreamHeap& h, int64_t bytes, Tag tag, const std::string* module) {
    if (bytes <= kQuick) {
      auto& list = h.quick[static_cast<size_t>(bytes / kUnit - 1)];
      if (!list.empty()) {
        const int64_t offset = list.back();
        list.pop_back();
        h.heap.retag(offset, tag, module);
        return reinterpret_cast<void*>(h.base + static_cast<CUdeviceptr>(offset));
      }
    }
    const int64_t offset = h.heap.place(bytes, tag, module);
    if (h.heap.top() > h.range || !map(h, offset, bytes)) {
      h.heap.remove(offset);
      // The hole that a request for more than the range leaves behind would have all later ones refused.
      if (h.heap.top() > h.range) h.heap.trim();
      return take_mapped(h, bytes, tag, module);
    }
    return reinterpret_cast<void*>(h.base + static_cast<CUdeviceptr>(offset));
  }
  // The same of what is mapped already: the smallest hole may lack what a larger one has.
  static void* take_mapped(StreamHeap& h, int64_t bytes, Tag tag, const std::string* module) {
    const int64_t offset = h.heap.place_within(bytes, tag, module, [&](int64_t begin, int64_t end) {
      int64_t from = begin;
      for (int64_t c = begin / kChunk; c * kChunk < end; ++c) {
        const int64_t next = (c + 1) * kChunk;
        if (h.chunks[static_cast<size_t>(c)] == 0)
          from = next;
        else if (std::min(next, end) - from >= bytes)
          return from;
      }
      return int64_t{-1};
    });
    return offset < 0 ? nullptr : reinterpret_cast<void*>(h.base + static_cast<CUdeviceptr>(offset));
  }
  // A block of what is mapped for another stream, which would else be unmapped, after a wait for the whole device, and
  // mapped anew for this one: where streams take turns near the limit, that was most of a step's time. Instead this
  // stream waits for what that one has to do now, and the block goes back to that one's heap when this one has passed.
  void* borrow(const Stream& stream, int64_t bytes, Tag tag, const std::string* module) {
    if (captures_in_progress() > 0) return nullptr;  // an event of a stream that is captured is part of the graph
    for (const auto& h : heaps) {
      if (h->key == kNobody || h->pool() != 0 || *h->stream == stream) continue;
      void* data = take_mapped(*h, bytes, tag, module);
      if (data == nullptr) continue;
      stream.wait(*h->stream);
      used_elsewhere[data] = {stream};
      return data;
    }
    return nullptr;
  }

  void give(void* data, int64_t bytes) {
    StreamHeap& h = heap_with(data);
    const auto offset = static_cast<int64_t>(reinterpret_cast<CUdeviceptr>(data) - h.base);
    if (bytes <= kQuick) {
      h.heap.retag(offset, Tag::workspace, nullptr);  // nobody's until it is taken again
      h.quick[static_cast<size_t>(bytes / kUnit - 1)].push_back(offset);
    } else {
      h.heap.remove(offset);
    }
  }

  std::vector<BlockInfo> list() const {
    std::vector<BlockInfo> all;
    for (const auto& h : heaps) {
      std::unordered_set<int64_t> kept;  // small ones that nobody has
      for (const auto& offsets : h->quick) kept.insert(offsets.begin(), offsets.end());
      const size_t first = all.size();
      h->heap.list(static_cast<uintptr_t>(h->base), all);
      std::erase_if(all, [&, i = size_t{0}](const BlockInfo& b) mutable {
        return i++ >= first && kept.contains(static_cast<int64_t>(b.address - static_cast<uintptr_t>(h->base)));
      });
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
    return all;
  }
};

DeviceMemory& memory_of(int device) {
  static auto* all = [] {
    auto* v =
        new std::vector<DeviceMemory>(static_cast<size_t>(std::max(1, device_count())));  // outlives static tensors
    for (size_t i = 0; i < v->size(); ++i) (*v)[i].device = static_cast<int>(i);
    return v;
  }();
  // The text of the error is not made in vain.
  if (device < 0 || device >= device_count()) [[unlikely]]
    throw DeviceError("allocate", cat("there is no device cuda:", device, ": ",
                                      device_count() == 0 ? unavailable_reason() : cat(device_count(), " found")));
  return (*all)[static_cast<size_t>(device)];
}

// Memory of the cards.
class CardMemory final : public memory::Backend {
 public:
  CardMemory() : Backend("cuda", DeviceType::cuda, Tier::device, memory::Bytes::fixed) {}

  void* allocate(Device device, size_t nbytes, Tag tag) override {
    const std::string* who = memory::holder();
    void* block = take(device, nbytes, tag, who);
    if (memory::is_recording()) [[unlikely]]
      memory::record_taken(device, tier, block, nbytes, tag, who);
    const int pattern = memory::poison_pattern();
    if (pattern >= 0) [[unlikely]]
      fill_bytes(device, block, static_cast<uint8_t>(pattern), nbytes);
    return block;
  }

  void deallocate(Device device, void* data, size_t nbytes, Tag tag) override {
    if (memory::is_recording()) [[unlikely]]
      memory::record_given(device, tier, data);
    DeviceMemory& m = memory_of(device.index);
    const int64_t bytes = rounded(nbytes);
    std::lock_guard lock(m.mutex);
    m.accounts.give(bytes, tag);
    if (const auto it = m.used_elsewhere.find(data); it != m.used_elsewhere.end()) {
      Pending p{data, bytes, {}};
      // In a capture the events would be nodes; the graph's own order keeps the block's users apart, and nobody gets it
      // before the capture ends.
      if (capturing()) it->second.clear();
      for (const Stream& s : it->second) {
        p.passed.push_back(std::make_unique<Event>(false, device.index));
        p.passed.back()->record(s);
      }
      m.used_elsewhere.erase(it);
      m.pending.push_back(std::move(p));
      return;
    }
    m.give(data, bytes);
  }

  void retag(Device device, void* data, size_t nbytes, Tag from, Tag to) override {
    if (memory::is_recording()) [[unlikely]]
      memory::record_retagged(device, tier, data, to);
    DeviceMemory& m = memory_of(device.index);
    std::lock_guard lock(m.mutex);
    m.accounts.retag(rounded(nbytes), from, to);
    StreamHeap& h = m.heap_with(data);
    h.heap.retag(static_cast<int64_t>(reinterpret_cast<CUdeviceptr>(data) - h.base), to);
  }

  void copy_in(Device device, void* to, const void* from, size_t nbytes) override {
    if (nbytes <= kMostPut) return put_bytes(to, device, from, nbytes);
    copy_bytes(to, device, from, Device::cpu(), nbytes);
  }
  void copy_out(Device device, void* to, const void* from, size_t nbytes) override {
    copy_bytes(to, Device::cpu(), from, device, nbytes);
  }

  Bound bound(Device device) override {
    const DeviceProperties& card = properties(device.index);  // throws where there is no such card
    const DeviceScope scope(device.index);
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "bound", "cudaMemGetInfo");
    return {cat(device, " (", card.name, ")"), static_cast<int64_t>(total), static_cast<int64_t>(total - free)};
  }

  // Of mapped memory: what is kept for reuse counts, and is given back where it stands in a request's way.
  int64_t set_limit(Device device, int64_t bytes) override {
    check(bytes >= 0, "set_limit", "needs a number of bytes, or 0 for the card's share; got ", bytes);
    DeviceMemory& m = memory_of(device.index);
    std::lock_guard lock(m.mutex);
    return std::exchange(m.most, bytes);
  }

  Stats stats(Device device) override {
    DeviceMemory& m = memory_of(device.index);
    std::lock_guard lock(m.mutex);
    return m.accounts.s;
  }
  std::vector<BlockInfo> blocks(Device device) override {
    DeviceMemory& m = memory_of(device.index);
    std::lock_guard lock(m.mutex);
    return m.list();
  }
  void reset_peak(Device device) override {
    DeviceMemory& m = memory_of(device.index);
    std::lock_guard lock(m.mutex);
    m.accounts.reset_peak();
  }
  // Unmaps every physical chunk that holds no block.
  void release_cached() override {
    refuse_in_capture("release_cached", "the host waits for the device");
    for (int d = 0; d < device_count(); ++d) {
      DeviceMemory& m = memory_of(d);
      std::lock_guard lock(m.mutex);
      m.take_back(true);
      m.unmap_holes();
    }
  }

 private:
  static void* take(Device device, size_t nbytes, Tag tag, const std::string* module) {
    DeviceMemory& m = memory_of(device.index);
    const Stream stream = current_stream(device.index);
    const int64_t bytes = rounded(nbytes);
    const bool captures = capturing();
    const RelaxedScope relaxed(captures);
    std::unique_lock lock(m.mutex);
    if (!m.pending.empty() && !captures) m.take_back(false);
    const int pool = capture_pool();
    const auto try_take = [&] {
      void* data = m.try_take(m.heap_of(pool, stream), bytes, tag, module);
      return data != nullptr || captures ? data : m.borrow(stream, bytes, tag, module);
    };
    void* data = try_take();
    if (data == nullptr) ++m.accounts.s.retries;
    while (data == nullptr && !captures) {
      while (data == nullptr && m.order_back()) data = try_take();
      if (data != nullptr) break;
      const bool waits = !m.pending.empty();
      m.take_back(true);
      if (waits) data = try_take();
      if (data != nullptr) break;
      // A little more than is asked for, and then all: each time the device is waited for.
      for (const int64_t enough : {std::max(2 * bytes, kUnmapped), std::numeric_limits<int64_t>::max()}) {
        m.unmap_holes(enough, heap_key(pool, stream.id()));
        data = try_take();
        if (data != nullptr) break;
      }
      if (data != nullptr) break;
      lock.unlock();
      const bool given = memory::relieve(device, bytes);
      lock.lock();
      if (given) continue;
      while (m.order_back()) {  // what other threads gave back meanwhile
      }
      data = try_take();
      break;
    }
    if (data == nullptr) memory::refuse(m.accounts.s, m.list(), bytes, m.limit(), tag, to_string(device));
    m.accounts.take(bytes, tag);
    m.accounts.reserve(m.mapped);
    return data;
  }
};

[[maybe_unused]] const bool g_registered = [] {
  memory::register_backend(*new CardMemory);  // it outlives static tensors
  register_tiers();
  return true;
}();
}  // namespace

double set_memory_fraction(double fraction, int device) {
  check(fraction > 0 && fraction <= 1, "set_memory_fraction", "needs a share in (0, 1], got ", fraction);
  DeviceMemory& m = memory_of(device);
  std::lock_guard lock(m.mutex);
  return std::exchange(m.fraction, fraction);
}

int create_pool(int device) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard lock(m.mutex);
  return ++m.pools;
}
void release_pool(int device, int pool) noexcept {
  DeviceMemory& m = memory_of(device);
  std::lock_guard lock(m.mutex);
  for (const auto& h : m.heaps)
    if (h->pool() == pool) h->key = kNobody;
  try {
    m.unmap_holes();
  } catch (const Error&) {  // the device has failed: whoever asks next is told
  }
}
int64_t pool_bytes(int device, int pool) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard lock(m.mutex);
  int64_t bytes = 0;
  for (const auto& h : m.heaps)
    if (h->pool() == pool) bytes += h->mapped_bytes();
  return bytes;
}

bool heap_holds(const Stream& stream, size_t nbytes, int64_t limit) {
  DeviceMemory& m = memory_of(stream.device());
  std::lock_guard lock(m.mutex);
  if (!m.pending.empty()) m.take_back(false);
  const Heap& heap = m.heap_of(0, stream).heap;
  return heap.top_after(rounded(nbytes)) <= std::max(heap.top(), limit);
}

void record_stream(const Tensor& t, const Stream& stream) {
  if (!t.device().is_cuda() || t.storage()->data == nullptr) return;
  if (t.tier() == memory::kUnified) return record_pinned(t.storage()->data, stream);
  DeviceMemory& m = memory_of(t.device().index);
  std::lock_guard lock(m.mutex);
  void* data = t.storage()->data;
  if (m.heap_with(data).key % 64 == stream.id()) return;
  auto& streams = m.used_elsewhere[data];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

}  // namespace strata::cuda
