#pragma once
// Kernels of tiles on the processor, from the same sources: define STRATA_TILE_EMULATION, include them and call
// emulation::launch(). For tests: what a card does with an ill-made kernel at times, this does always, and says so.
//
// A block's threads are fibers that run in turn until they wait. Shared memory is an array, full of NaN at first.
// Whatever runs on by itself runs as late as it may (seed 0) or at random times (other seeds): copies when no thread
// can go on, products when they are waited for. Operands are read as their descriptors say, swizzle and all. Blocks run
// one after another (launch()), in clusters (launch_clusters()) or all at the same time (launch_together()).

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "strata/core/dtype.h"
#include "strata/core/error.h"
#include "strata/cuda/tile/emulation_fiber.cuh"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __CUDA_ARCH_FEAT_SM90_ALL 1

struct EmulatedIndex {
  unsigned x = 0, y = 0, z = 0;
};
inline EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;
struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
/// A tensor map: sizes and box in elements, steps in bytes.
struct CUtensorMap {
  uint8_t* data = nullptr;
  int element_bytes = 0, dims = 3;
  int64_t sizes[4] = {1, 1, 1, 1}, steps[4] = {};
  int box[4] = {1, 1, 1, 1};
};

namespace strata::cuda::tile::emulation {

inline constexpr uint32_t kBase = 1024;  // the address where shared memory begins; zero is none
inline constexpr size_t kMostShared = 232448;

/// Whether fibers run in this build: the thread sanitizer does not follow them.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kRuns = false;
#else
inline constexpr bool kRuns = true;
#endif

/// Threads that meet in an instruction of all of them.
struct Meeting {
  int arrived = 0;
  uint64_t times = 0;
  const char* what = nullptr;
  void* arguments[128] = {};
};
struct Barrier {  // an mbarrier
  int expected = 0, pending = 0;
  int64_t bytes = 0;
  uint64_t phase = 0;
};
struct NamedBarrier {
  int threads = 0, arrived = 0;
  uint64_t times = 0;
};
using Work = std::function<void()>;
class Block;
struct Cluster {  // blocks that know each other, and where their threads meet
  std::vector<Block*> blocks;
  int alive = 0, arrived = 0;
  uint64_t times = 0;
};
struct Groups {  // of copies or products that run on
  std::vector<Work> open;
  std::deque<std::vector<Work>> closed;
  void close() { closed.push_back(std::move(open)), open.clear(); }
  void finish(size_t left) {
    for (; closed.size() > left; closed.pop_front())
      for (Work& w : closed.front()) w();
  }
  bool idle() const {
    if (!open.empty()) return false;
    for (const auto& c : closed)
      if (!c.empty()) return false;
    return true;
  }
};
struct Thread {
  Fiber fiber;
  int number = 0;
  bool done = false;
  bool (*ready)(void*) = nullptr;  // null: it can go on
  void* ready_argument = nullptr;
  const char* waits_for = nullptr;
  int64_t waits_for_which = -1;
  Groups copies, out;               // cp.async, and copies to global memory: what reads shared memory
  std::vector<Work> writes;         // of copies that have read: what writes global memory
  std::vector<uint32_t> unfenced;   // places of ordinary stores to shared memory, by 16 bytes
  const char* unordered = nullptr;  // what the thread did that fence_proxies() has to follow

  void write() {
    for (Work& w : writes) w();
    writes.clear();
  }
};

class Block {
 public:
  Block(int threads, size_t shared_bytes, uint64_t seed) : seed_(seed), random_(seed), threads_(threads) {
    if (shared_bytes > kMostShared) failure = cat("a block has ", kMostShared, " bytes of shared memory");
    idle_most_ = seed == 0 ? 0 : 100;
    bytes_.assign(shared_bytes + 1024, 0xff);
    unfenced.assign(shared_bytes / 16 + 1, 0);
    shared = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 1023) / 1024 * 1024);
    shared_size = shared_bytes;
    warps.resize(static_cast<size_t>(threads + 31) / 32), groups.resize(static_cast<size_t>(threads + 127) / 128);
    products.resize(groups.size()), sent.resize(warps.size());
  }

  /// Begins to run `body` on every thread.
  void start(const Work& body) {
    body_ = &body;
    all_.resize(static_cast<size_t>(threads_));
    for (int i = 0; i < threads_; ++i) {
      Thread& t = all_[static_cast<size_t>(i)];
      t.number = i;
      t.fiber.prepare(&Block::begin);
    }
  }
  /// Every thread that can go on does; false when all are done, or one has failed.
  bool pass() {
    if (!failure.empty() || ended_) return false;
    if (step()) return true;
    ended_ = true;
    if (failure.empty()) check_end();
    return false;
  }
  /// Block `rank` of this one's cluster, for what a thread does `what` to it.
  Block& peer(int rank, const char* what) {
    if (cluster == nullptr || rank < 0 || rank >= static_cast<int>(cluster->blocks.size()))
      fail(cat(what, ": no block ", rank, " in the cluster"));
    Block& there = *cluster->blocks[static_cast<size_t>(rank)];
    if (there.ended_) fail(cat(what, ": block ", rank, " of the cluster has ended"));
    return there;
  }
  /// A copy into its shared memory, which does not wait for its threads, is there.
  void land() {
    if (!arriving.empty()) land_one();
  }
  void stuck() {
    // What the threads that are not done wait for, neighbours with the same together.
    std::string last;
    for (const Thread& t : all_) {
      if (t.done) continue;
      std::string what = cat(" for ", t.waits_for, " ", t.waits_for_which);
      if (what != last)
        failure += cat(failure.empty() ? "nothing can go on: thread " : ", thread ", t.number, " waits", what);
      last = std::move(what);
    }
  }
  /// Whether it only waits, unless for another block.
  bool waits() const { return idle_ > idle_most_; }

  /// Called by threads. Does not return.
  [[noreturn]] void fail(std::string what) {
    if (failure.empty()) failure = cat("thread ", now->number, ": ", what);
    std::string().swap(what);  // this stack is left for good
    for (;;) now->fiber.leave();
  }
  /// Lets other threads run until ready() holds.
  template <class Ready>
  void wait_until(const Ready& ready, const char* what, int64_t which = -1) {
    if (ready()) return;
    now->ready = [](void* r) { return (*static_cast<const Ready*>(r))(); };
    now->ready_argument = const_cast<void*>(static_cast<const void*>(&ready));
    now->waits_for = what, now->waits_for_which = which;
    now->fiber.leave();
  }
  /// The last of `size` threads calls act() with what each of them brought.
  template <class Act>
  void meet(Meeting& m, int size, int index, const char* what, void* argument, const Act& act) {
    if (m.arrived > 0 && std::strcmp(m.what, what) != 0) fail(cat("threads meet in ", m.what, " and in ", what));
    m.what = what, m.arguments[index] = argument;
    const uint64_t times = m.times;
    if (++m.arrived == size) {
      m.arrived = 0;
      act(m.arguments);
      ++m.times;
      return;
    }
    wait_until([&] { return m.times != times; }, what);
  }
  template <class Act>
  void meet_warp(const char* what, void* argument, const Act& act) {
    meet(warps[static_cast<size_t>(now->number / 32)], 32, now->number % 32, what, argument, act);
  }
  template <class Act>
  void meet_group(const char* what, void* argument, const Act& act) {
    meet(groups[static_cast<size_t>(now->number / 128)], 128, now->number % 128, what, argument, act);
  }

  uint32_t address(const void* p) {
    const auto at = static_cast<const uint8_t*>(p) - shared;
    if (at < 0 || static_cast<size_t>(at) >= shared_size) fail("an address outside of shared memory");
    return kBase + static_cast<uint32_t>(at);
  }
  uint8_t* pointer(uint32_t address, size_t bytes) {
    if (address < kBase || address - kBase + bytes > shared_size) fail("an address outside of shared memory");
    return shared + (address - kBase);
  }
  Barrier& barrier(const uint64_t* b) {
    const auto found = barriers.find(address(b));
    if (found == barriers.end()) fail("a barrier that was not initialised");
    return found->second;
  }
  static void settle(Barrier& b) {
    if (b.pending == 0 && b.bytes == 0) ++b.phase, b.pending = b.expected;
  }
  /// Ordinary stores that the copy engine and products may not see yet.
  void stored(uint32_t at, int bytes) {
    for (uint32_t i = (at - kBase) / 16; i <= (at - kBase + static_cast<uint32_t>(bytes) - 1) / 16; ++i)
      unfenced[i] = now->number + 1, now->unfenced.push_back(i);
  }
  void fenced() {
    for (const uint32_t i : now->unfenced)
      if (unfenced[i] == now->number + 1) unfenced[i] = 0;
    now->unfenced.clear();
  }
  bool seen(uint32_t at) const { return unfenced[(at - kBase) / 16] == 0; }

  std::string failure;
  uint8_t* shared = nullptr;
  size_t shared_size = 0;
  Thread* now = nullptr;
  std::vector<Meeting> warps, groups;
  std::vector<Groups> products;  // of warpgroups
  std::map<uint32_t, Barrier> barriers;
  std::map<int, NamedBarrier> named;
  Cluster* cluster = nullptr;
  std::vector<std::vector<Work>> sent;  // of warps: stores to other blocks of which these do not know yet
  std::vector<Work> arriving;           // copies to shared memory by the copy engine
  std::vector<int> unfenced;            // of 16 bytes: 1 + the thread that stored them

 private:
  static void begin();

  bool chance(int of) { return seed_ != 0 && random_() % static_cast<uint64_t>(of) == 0; }
  void land_one() {
    const size_t i = seed_ == 0 ? 0 : random_() % arriving.size();
    const Work w = std::move(arriving[i]);
    arriving.erase(arriving.begin() + static_cast<int64_t>(i));
    w();
  }
  bool step() {
    bool alive = false, moved = false;
    const size_t first = seed_ == 0 ? 0 : random_() % all_.size();
    for (size_t i = 0; i < all_.size() && failure.empty(); ++i) {
      Thread& t = all_[(first + i) % all_.size()];
      if (t.done) continue;
      alive = true;
      if (t.ready != nullptr && !t.ready(t.ready_argument)) continue;
      if (chance(8)) continue;
      t.ready = nullptr, moved = true;
      now = &t;
      threadIdx.x = static_cast<unsigned>(t.number);
      t.fiber.enter();
    }
    if (!alive || !failure.empty()) return false;
    if (!arriving.empty() && (!moved || chance(3))) {
      land_one();
    } else if (chance(3)) {
      for (Groups& g : products)
        if (!g.closed.empty()) g.finish(g.closed.size() - 1);
      for (Thread& t : all_) {
        if (!t.out.closed.empty() && chance(2)) t.out.finish(t.out.closed.size() - 1);
        if (chance(2)) t.write();
      }
    } else if (!moved) {
      ++idle_;
    }
    if (moved) idle_ = 0;
    return true;
  }
  void check_end() {
    for (Thread& t : all_) t.write();
    if (!arriving.empty()) failure = "the block ends before its copies to shared memory";
    for (const Groups& g : products)
      if (!g.idle()) failure = "the block ends before its products";
    for (const auto& s : sent)
      if (!s.empty()) failure = "the block ends before it has told others of its stores to them";
    for (const Thread& t : all_)
      if (!t.copies.idle() || !t.out.idle()) failure = "the block ends before its copies have read shared memory";
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  int threads_, idle_ = 0, idle_most_ = 0;
  bool ended_ = false;
  std::vector<uint8_t> bytes_;
  std::vector<Thread> all_;
  const Work* body_ = nullptr;
};

inline Block* block = nullptr;  // the one that runs

inline void Block::begin() {
  (*block->body_)();
  block->now->done = true;
  if (block->cluster != nullptr) --block->cluster->alive;
  for (;;) block->now->fiber.leave();
}

// Runs `body` on every thread of blocks `first` up to `end` at the same time; the first failure, or nothing. They may
// be a cluster.
inline std::string run_blocks(const Work& body, unsigned first, unsigned end, unsigned threads, size_t shared_bytes,
                              uint64_t seed, bool as_cluster = false) {
  Cluster cluster;
  std::vector<std::unique_ptr<Block>> all;
  for (unsigned b = first; b < end; ++b) {
    all.push_back(std::make_unique<Block>(static_cast<int>(threads), shared_bytes, seed == 0 ? 0 : seed + b));
    all.back()->start(body);
    if (!as_cluster) continue;
    all.back()->cluster = &cluster;
    cluster.blocks.push_back(all.back().get()), cluster.alive += static_cast<int>(threads);
  }
  std::string failure;
  std::mt19937_64 random(seed);
  const auto some = [&] { return first + static_cast<unsigned>(random() % (2 * static_cast<uint64_t>(end - first))); };
  unsigned asleep = seed != 0 ? some() : end;  // a block that the others run ahead of for a while
  for (bool alive = true; alive && failure.empty();) {
    alive = false;
    bool waits = true;
    if (seed != 0 && random() % 128 == 0) asleep = some();
    for (unsigned b = first; b < end && failure.empty(); ++b) {
      if (b == asleep && end - first > 1) {
        alive = true, waits = false;
        all[b - first]->land();
        continue;
      }
      block = all[b - first].get(), blockIdx = {b, 0, 0};
      if (block->pass()) alive = true, waits = waits && block->waits();
      if (!block->failure.empty()) failure = cat("block ", b, ", ", block->failure);
    }
    for (unsigned b = first; alive && waits && b < end && failure.empty(); ++b) {
      all[b - first]->stuck();
      if (!all[b - first]->failure.empty()) failure = cat("block ", b, ", ", all[b - first]->failure);
    }
  }
  block = nullptr;
  return failure;
}

/// Runs blocks one after another; the first failure, or nothing.
template <class... P, class... A>
std::string launch(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared_bytes, uint64_t seed,
                   const A&... arguments) {
  gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
  std::string failure;
  for (unsigned b = 0; b < blocks && failure.empty(); ++b)
    failure = run_blocks([&] { kernel(arguments...); }, b, b + 1, threads, shared_bytes, seed);
  return failure;
}
/// Runs clusters of `cluster` blocks one after another.
template <class... P, class... A>
std::string launch_clusters(void (*kernel)(P...), unsigned cluster, unsigned blocks, unsigned threads,
                            size_t shared_bytes, uint64_t seed, const A&... arguments) {
  gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
  std::string failure;
  for (unsigned b = 0; b < blocks && failure.empty(); b += cluster)
    failure = run_blocks([&] { kernel(arguments...); }, b, b + cluster, threads, shared_bytes, seed, true);
  return failure;
}
/// Runs all blocks at the same time, as those that wait for each other want it.
template <class... P, class... A>
std::string launch_together(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared_bytes, uint64_t seed,
                            const A&... arguments) {
  gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
  return run_blocks([&] { kernel(arguments...); }, 0, blocks, threads, shared_bytes, seed);
}

}  // namespace strata::cuda::tile::emulation

#include "strata/cuda/tile/emulation_cluster.cuh"
