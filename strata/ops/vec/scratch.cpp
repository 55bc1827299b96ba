#include "strata/ops/vec/scratch.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "strata/core/error.h"

namespace strata {
namespace {

struct Chunk {
  std::byte* data;
  size_t size;
};

// Chunks never move, so that blocks stay valid while the stack grows.
struct Stack {
  std::vector<Chunk> chunks;
  size_t current = 0, used = 0;
  int frames = 0;

  ~Stack() {
    for (const Chunk& c : chunks) std::free(c.data);
  }
  void add(size_t size) {
    void* p = std::aligned_alloc(64, size);
    if (!p) throw MemoryError("workspace", cat("could not get ", static_cast<unsigned long>(size), " bytes for a kernel"));
    chunks.push_back({static_cast<std::byte*>(p), size});
  }
};

Stack& stack() {
  thread_local Stack s;
  return s;
}

}  // namespace

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
  // Nobody holds a block: one chunk of the whole size serves the next call without gaps.
  if (s.chunks.size() > 1) {
    size_t total = 0;
    for (const Chunk& c : s.chunks) {
      total += c.size;
      std::free(c.data);
    }
    s.chunks.clear();
    if (void* p = std::aligned_alloc(64, total)) s.chunks.push_back({static_cast<std::byte*>(p), total});
  }
  s.current = s.used = 0;
}

void* ScratchFrame::take_bytes(size_t bytes) {
  Stack& s = stack();
  bytes = (bytes + 63) / 64 * 64;
  while (s.current < s.chunks.size() && s.used + bytes > s.chunks[s.current].size) {
    ++s.current;
    s.used = 0;
  }
  if (s.current == s.chunks.size()) s.add(std::max<size_t>(bytes, size_t{1} << 18));
  void* p = s.chunks[s.current].data + s.used;
  s.used += bytes;
  return p;
}

}  // namespace strata
