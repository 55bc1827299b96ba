#include "strata/ops/vec/scratch.h"

#include <algorithm>
#include <vector>

#include "strata/memory/allocator.h"
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

// Chunks never move, so that blocks stay valid while the stack grows.
struct Stack {
  std::vector<Chunk> chunks;
  size_t current = 0, used = 0;
  size_t next = 0;  // size of the next chunk at least
  int frames = 0;

  ~Stack() { clear(); }
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
  chunk_ = s.current;
  used_ = s.used;
  ++s.frames;
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
  if (total <= kKept && s.chunks.size() <= 1) return;
  s.clear();
  s.next = std::min(total, kKept);
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
