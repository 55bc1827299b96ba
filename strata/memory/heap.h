#pragma once
// Heap: best-fit placement with splitting and merging in one growing address range. It only does arithmetic on offsets,
// so the meta device uses it too: a dry run then sees the same placement, and the same peak, as the real run.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/backend.h"

namespace strata::memory {

class Heap {
 public:
  struct Block {
    int64_t bytes = 0;
    Tag tag = Tag::activation;
    const std::string* module = nullptr;  // "linear in blocks.3": the op, the module, or both
  };

  /// Offset of a free stretch of `bytes`; the range grows when no hole is large enough.
  int64_t place(int64_t bytes, Tag tag, const std::string* module);
  /// Offset of a stretch in the smallest hole that has one, which `where(begin, end)` says of a hole: -1, or where
  /// within [begin, end - bytes]. -1 where no hole has one: the range does not grow.
  int64_t place_within(int64_t bytes, Tag tag, const std::string* module,
                       const std::function<int64_t(int64_t, int64_t)>& where);
  /// Gives back what place() or place_within() returned; returns the number of bytes.
  int64_t remove(int64_t offset);

  /// Counts a block under another tag.
  void retag(int64_t offset, Tag tag) { used_.at(offset).tag = tag; }
  /// The same for a block that goes to a new holder.
  void retag(int64_t offset, Tag tag, const std::string* module) {
    Block& b = used_.at(offset);
    b.tag = tag, b.module = module;
  }
  /// Forgets the hole at the end of the range, as if it had never grown there.
  void trim();

  /// The end of the used range now, and at its highest: bytes that were touched.
  int64_t top() const { return top_; }
  const std::map<int64_t, Block>& used() const { return used_; }
  const std::map<int64_t, int64_t>& holes() const { return holes_; }
  /// Appends the blocks in use, by address; the range begins at `base`.
  void list(uintptr_t base, std::vector<BlockInfo>& into) const;
  /// Where place() would end for `bytes`: what a request would make of the range.
  int64_t top_after(int64_t bytes) const;

 private:
  void add_hole(int64_t offset, int64_t bytes);
  void drop_hole(std::map<int64_t, int64_t>::iterator it);

  int64_t top_ = 0;
  std::map<int64_t, Block> used_;              // by offset
  std::map<int64_t, int64_t> holes_;           // offset -> bytes
  std::set<std::pair<int64_t, int64_t>> fit_;  // (bytes, offset): the smallest sufficient hole, lowest address first
};

}  // namespace strata::memory
