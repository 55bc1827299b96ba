#include "strata/ops/vec/scratch.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
    chunks.push_back({nullptr, size});
    try {
      chunks.back().data = static_cast<std::byte*>(memory::allocate(Device::cpu(), size, memory::Tag::workspace));
    } catch (...) {
      chunks.pop_back();
      throw;
    }
  }
  void clear() {
    for (const Chunk& c : chunks) memory::deallocate(Device::cpu(), c.data, c.size, memory::Tag::workspace);
    chunks.clear();
  }
};

// Of stacks that no frame is open in, until that is enough.
bool Stacks::relieve(Device device, int64_t bytes) noexcept {
  if (!device.is_cpu()) return false;
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) return false;
  int64_t given = 0;
  for (Stack* s : all) {
    Use idle = Use::idle;
    if (!s->use.compare_exchange_strong(idle, Use::relieved, std::memory_order_acquire)) continue;
    for (const Chunk& c : s->chunks) given += static_cast<int64_t>(c.size);
    s->clear();
    s->use.store(Use::idle, std::memory_order_release);
    if (given >= bytes) break;
  }
  return given > 0;
}

Stack& stack() {
  thread_local Stack s;
  return s;
}

}  // namespace

int64_t scratch_kept(int64_t bytes) {
  return std::min(bytes, static_cast<int64_t>(kKept));
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
    s.add(std::max({bytes, s.next, kLeastChunk}));
    s.next = 0;
  }
  void* p = s.chunks[s.current].data + s.used;
  s.used += bytes;
  return p;
}

}  // namespace strata
