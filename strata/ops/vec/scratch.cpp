#include "strata/ops/vec/scratch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/loop_width_inl.h"
#include "strata/memory/allocator.h"
#include "strata/memory/pressure.h"
#include "strata/ops/vec/scratch_kept.h"

namespace strata {
namespace {

struct Chunk {
  std::byte* data;
  size_t size;
};

// What a thread keeps between calls at most.
constexpr size_t kKept = size_t{16} << 20;
constexpr size_t kLeastChunk = size_t{1} << 18;

struct Stack;

// The threads' stacks, which give back what they keep where memory is short: on many cores that is more than some
// budgets have to spare.
struct Stacks final : memory::Reliever {
  std::mutex mutex;
  std::vector<Stack*> all;
  bool relieve(Device device, int64_t bytes) noexcept override;
  KeptScratch release(int64_t bytes) noexcept;
  static const std::shared_ptr<Stacks>& instance() {
    static const auto& one = *new std::shared_ptr<Stacks>([] {  // threads may outlive static objects
      auto made = std::make_shared<Stacks>();
      memory::add_reliever(made);
      return made;
    }());
    return one;
  }
};

enum class Use : uint8_t { idle, taken, relieved };

// Chunks never move, so that blocks stay valid while the stack grows.
struct Stack {
  std::vector<Chunk> chunks;
  size_t current = 0, used = 0;
  size_t next = 0;  // size of the next chunk at least
  int frames = 0;
  int width = 1;                    // of the widest loop in which it grew
  std::atomic<Use> use{Use::idle};  // taken by its thread while a frame is open

  Stack() {
    Stacks& stacks = *Stacks::instance();
    const std::lock_guard lock(stacks.mutex);
    stacks.all.push_back(this);
  }
  ~Stack() {
    Stacks& stacks = *Stacks::instance();
    {
      const std::lock_guard lock(stacks.mutex);
      std::erase(stacks.all, this);
    }
    clear();
  }
  Stack(const Stack&) = delete;
  void open() {
    if (frames++ > 0) return;
    for (Use idle = Use::idle; !use.compare_exchange_weak(idle, Use::taken, std::memory_order_acquire);
         idle = Use::idle)
      if (idle == Use::relieved) std::this_thread::yield();
  }
  void add(size_t size) {
    width = std::max(width, loop_width());
    chunks.push_back({nullptr, size});
    try {
      chunks.back().data = static_cast<std::byte*>(memory::allocate(Device::cpu(), size, memory::Tag::workspace));
    } catch (...) {
      chunks.pop_back();
      throw;
    }
  }
  // One that later frames find large enough, where that has room without anything being sent away for it.
  void add_for(size_t bytes) {
    const size_t wanted = std::max({bytes, std::exchange(next, 0), kLeastChunk});
    if (wanted > bytes) try {
        const memory::NoRelief spare;
        return add(wanted);
      } catch (const MemoryError&) {  // what is needed, then
      }
    add(bytes);
  }
  void clear() {
    for (const Chunk& c : chunks) memory::deallocate(Device::cpu(), c.data, c.size, memory::Tag::workspace);
    chunks.clear();
  }
};

bool Stacks::relieve(Device device, int64_t bytes) noexcept {
  if (!device.is_cpu()) return false;
  const std::unique_lock lock(mutex, std::try_to_lock);
  return lock && release(bytes).bytes > 0;
}
// Of stacks that no frame is open in, until that is enough. Memory is short: what is taken next is what is needed.
KeptScratch Stacks::release(int64_t bytes) noexcept {
  KeptScratch given;
  for (Stack* s : all) {
    Use idle = Use::idle;
    if (!s->use.compare_exchange_strong(idle, Use::relieved, std::memory_order_acquire)) continue;
    int64_t kept = 0;
    for (const Chunk& c : s->chunks) kept += static_cast<int64_t>(c.size);
    s->clear();
    s->next = 0;
    const int width = std::exchange(s->width, 1);
    s->use.store(Use::idle, std::memory_order_release);
    if (kept == 0) continue;
    given.least = given.threads == 0 ? kept : std::min(given.least, kept);
    given.bytes += kept;
    given.width = std::max(given.width, width);
    ++given.threads;
    if (given.bytes >= bytes) break;
  }
  return given;
}

Stack& stack() {
  thread_local Stack s;
  return s;
}

}  // namespace

int64_t scratch_kept(int64_t bytes) {
  return std::min(bytes, static_cast<int64_t>(kKept));
}

KeptScratch release_scratch() noexcept {
  Stacks& stacks = *Stacks::instance();
  const std::lock_guard lock(stacks.mutex);
  return stacks.release(std::numeric_limits<int64_t>::max());
}

ScratchFrame::ScratchFrame() {
  Stack& s = stack();
  s.open();
  chunk_ = s.current;
  used_ = s.used;
}

ScratchFrame::~ScratchFrame() {
  Stack& s = stack();
  s.current = chunk_;
  s.used = used_;
  if (--s.frames > 0) return;
  s.current = s.used = 0;
  // Nobody holds a block: one chunk of the whole size will serve the next call without gaps.
  size_t total = 0;
  for (const Chunk& c : s.chunks) total += c.size;
  if (total > kKept || s.chunks.size() > 1) {
    s.clear();
    s.next = std::min(total, kKept);
  }
  s.use.store(Use::idle, std::memory_order_release);
}

void* ScratchFrame::take_bytes(size_t bytes) {
  Stack& s = stack();
  bytes = (bytes + 63) / 64 * 64;
  while (s.current < s.chunks.size() && s.used + bytes > s.chunks[s.current].size) {
    ++s.current;
    s.used = 0;
  }
  if (s.current == s.chunks.size()) {
    s.add_for(bytes);
  }
  void* p = s.chunks[s.current].data + s.used;
  s.used += bytes;
  return p;
}

}  // namespace strata
