#include "strata/cuda/page_locked.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/backend.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/memory_inl.cuh"
#include "strata/memory/locked_pool.h"
#include "strata/memory/room_costs_inl.h"

namespace strata::cuda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Pages of this process's own, so that no driver rounds them up; from the driver where it locks only what it made.
class LockedPages final : public memory::LockedPool::Source {
 public:
  void* lock(size_t bytes) override {
    if (bytes >= (size_t{64} << 20) &&
        memory::backend(Device::cpu()).bound(Device::cpu()).free() < static_cast<int64_t>(bytes))
      return nullptr;  // the system would end a program rather than refuse
    const RelaxedScope relaxed(capturing());
    const double begin = now();
    void* data = registers_ ? map_and_register(bytes) : nullptr;
    if (data == nullptr && !registers_) {
      const cudaError_t e = cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
      if (e != cudaSuccess) data = nullptr;
      refused_ = e;
      cudaGetLastError();
      if (data != nullptr) driver_made_.insert(data);
    }
    memory::count_locked(data != nullptr ? static_cast<int64_t>(bytes) : 0, 0, now() - begin);
    return data;
  }
  void unlock(void* data, size_t bytes) noexcept override {
    const double begin = now();
    if (driver_made_.erase(data) != 0) {
      cudaFreeHost(data);
    } else {
      cudaHostUnregister(data);
      munmap(data, bytes);
    }
    cudaGetLastError();
    memory::count_locked(0, static_cast<int64_t>(bytes), now() - begin);
  }
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  cudaError_t refused() const { return refused_; }

 private:
  void* map_and_register(size_t bytes) {
    // From a huge page's beginning on, so that large blocks are made of them: they are locked several times as fast.
    const size_t more = bytes >= kHugePage ? kHugePage : 0;
    void* m = mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
      refused_ = cudaErrorMemoryAllocation;
      return nullptr;
    }
    auto* begin = static_cast<std::byte*>(m);
    if (more != 0) {
      const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(m) % kHugePage) % kHugePage;
      if (before != 0) munmap(begin, before);
      begin += before;
      if (before != more) munmap(begin + bytes, more - before);
      madvise(begin, bytes, MADV_HUGEPAGE);
      touch(begin, bytes);
    }
    refused_ = cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (refused_ == cudaSuccess) {
      void* seen = nullptr;
      if (cudaHostGetDevicePointer(&seen, begin, 0) == cudaSuccess && seen == begin) return begin;
      cudaHostUnregister(begin);
      refused_ = cudaErrorNotSupported;
    }
    cudaGetLastError();
    munmap(begin, bytes);
    if (refused_ != cudaErrorMemoryAllocation) registers_ = false;  // not on this system
    return nullptr;
  }
  // The system clears pages as they are touched: several threads do that at the memory's speed, where locking does it
  // on one.
  static void touch(std::byte* begin, size_t bytes) {
    constexpr size_t kPart = size_t{8} << 20;
    const size_t parts = bytes / kPart;
    const auto run = [=](size_t part, size_t of) {
      const size_t from = bytes / of * part, to = part + 1 == of ? bytes : bytes / of * (part + 1);
      for (size_t at = from; at < to; at += memory::LockedPool::kPage)
        *const_cast<volatile std::byte*>(begin + at) = std::byte{0};
    };
    const size_t n = std::min<size_t>({parts, 8, std::max(1U, std::thread::hardware_concurrency())});
    if (n < 2) return;
    try {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < n; ++i) threads.emplace_back(run, i, n);
    } catch (const std::system_error&) {  // locking touches what is left
    }
  }

  bool registers_ = true;
  cudaError_t refused_ = cudaSuccess;
  std::set<void*> driver_made_;
};

// The pool, and who still uses what was given back.
class PageLocked {
 public:
  void* allocate(size_t nbytes) {
    properties(0);  // throws where there is no card, with the reason
    const std::lock_guard lock(mutex_);
    take_back();
    void* data = pool_.allocate(nbytes, may_unlock());
    if (data == nullptr && may_unlock() && !waiting_.empty()) {
      for (Waiting& w : waiting_)
        for (const auto& e : w.passed) e->synchronize();
      take_back();
      data = pool_.allocate(nbytes);
    }
    if (data == nullptr) refuse(nbytes);
    used_.emplace(data, Block{.bytes = pool_.size(data), .streams = {}});
    return data;
  }
  void deallocate(void* data, std::span<const Stream> users) {
    const std::lock_guard lock(mutex_);
    const auto it = used_.find(data);
    Waiting w{.data = data, .streams = std::move(it->second.streams), .passed = {}};
    used_.erase(it);
    for (const Stream& s : users)
      if (std::find(w.streams.begin(), w.streams.end(), s) == w.streams.end()) w.streams.push_back(s);
    if (w.streams.empty()) return pool_.deallocate(data, may_unlock());
    if (!capturing()) mark(w);
    waiting_.push_back(std::move(w));
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
  void release() {
    if (!may_unlock()) return;
    const std::lock_guard lock(mutex_);
    for (Waiting& w : waiting_) {
      if (w.passed.empty()) mark(w);
      for (const auto& e : w.passed) e->synchronize();
    }
    take_back();
    pool_.release();
  }
  int64_t size(const void* block) {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(pool_.size(block));
  }
  std::pair<int64_t, int64_t> bytes() {
    const std::lock_guard lock(mutex_);
    return {pool_.locked(), pool_.used()};
  }

 private:
  struct Block {
    size_t bytes = 0;
    std::vector<Stream> streams;  // that copy from or to it
  };
  // A block given back that streams may still use.
  struct Waiting {
    void* data = nullptr;
    std::vector<Stream> streams;
    std::vector<std::unique_ptr<Event>> passed;  // one for each stream; none yet where a graph was being captured
  };

  // Unlocking may wait for the device.
  static bool may_unlock() { return captures_in_progress() == 0; }
  // Where that fails the device has failed or the program ends: without its events nobody gets the block.
  static void mark(Waiting& w) noexcept {
    try {
      std::vector<std::unique_ptr<Event>> passed;
      for (const Stream& s : w.streams) {
        passed.push_back(std::make_unique<Event>(false, s.device()));
        const DeviceScope scope(s.device());
        passed.back()->record(s);
      }
      w.passed = std::move(passed);
    } catch (const Error&) {
    }
  }
  // Frees the blocks whose streams have passed.
  void take_back() {
    if (capturing()) return;
    for (size_t i = 0; i < waiting_.size();) {
      Waiting& w = waiting_[i];
      if (w.passed.empty()) mark(w);
      const bool done =
          !w.passed.empty() && std::all_of(w.passed.begin(), w.passed.end(), [](const auto& e) { return e->query(); });
      if (!done) {
        ++i;
        continue;
      }
      pool_.deallocate(w.data, may_unlock());
      if (i + 1 != waiting_.size()) std::swap(w, waiting_.back());
      waiting_.pop_back();
    }
  }
  [[noreturn]] void refuse(size_t nbytes) {
    rlimit most{};
    const bool known = getrlimit(RLIMIT_MEMLOCK, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
    const memory::Bound bound = memory::backend(Device::cpu()).bound(Device::cpu());
    throw MemoryError(
        "allocate",
        cat("cannot page-lock ", static_cast<int64_t>(nbytes), " bytes of the host's memory: ", pool_.locked(),
            " are locked by this program, ", bound.name, " has ", bound.free(), " left of ", bound.limit,
            ", the limit of locked memory (ulimit -l) is ",
            known ? cat(static_cast<int64_t>(most.rlim_cur), " bytes") : std::string("unlimited"),
            pages_.refused() == cudaSuccess ? std::string()
                                            : cat(", and the driver says ", cudaGetErrorString(pages_.refused()))));
  }

  std::mutex mutex_;
  LockedPages pages_;
  memory::LockedPool pool_{pages_};
  std::map<const void*, Block, std::less<>> used_;
  std::vector<Waiting> waiting_;
};

PageLocked& page_locked() {
  static auto* p = new PageLocked;  // outlives static tensors
  return *p;
}
}  // namespace

void* allocate_locked(size_t nbytes) {
  return page_locked().allocate(nbytes);
}
int64_t locked_size(const void* block) {
  return page_locked().size(block);
}
void deallocate_locked(void* block, std::span<const Stream> users) {
  page_locked().deallocate(block, users);
}
int64_t locked_bytes() {
  return page_locked().bytes().first;
}
int64_t locked_bytes_used() {
  return page_locked().bytes().second;
}
void release_locked() {
  page_locked().release();
}
void record_pinned(const void* host, const Stream& stream) {
  if (!capturing()) page_locked().record(host, stream);
}

}  // namespace strata::cuda
