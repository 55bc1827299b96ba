#pragma once
// Which page-locked memory is whose: nothing of it knows who locks pages, so that it is tested without a card.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <unordered_map>

#include "strata/memory/heap.h"

namespace strata::memory {

/// Blocks of memory that costs milliseconds to get. Large ones are whole pages of their own, no more; small ones share
/// slabs. What is given back is kept for a while. Whoever owns it locks.
class LockedPool {
 public:
  /// Who locks and unlocks pages, and says what time it is.
  class Source {
   public:
    virtual ~Source() = default;
    /// `bytes`, whole pages, beginning on one; nullptr where they are refused.
    virtual void* lock(size_t bytes) = 0;
    virtual void unlock(void* data, size_t bytes) noexcept = 0;
    /// Seconds of a steady clock.
    virtual double now() = 0;
  };

  static constexpr size_t kPage = 4096;
  static constexpr size_t kSlab = size_t{1} << 20;
  /// Blocks up to here share slabs, in steps of 64 bytes.
  static constexpr size_t kSmall = kSlab / 8;
  /// What nobody asked for so long is unlocked. Where that was too soon, because blocks of the size are asked for
  /// again, it is twice as long as it took until then: steps of a minute do not lock their pages anew each.
  static constexpr double kIdleSeconds = 10;
  static constexpr double kLongestIdle = 900;
  /// Unused blocks may take so much, or a quarter of those in use, before a new one is locked.
  static constexpr int64_t kKept = int64_t{64} << 20;

  explicit LockedPool(Source& source) : source_(source) {}
  ~LockedPool();
  LockedPool(const LockedPool&) = delete;

  /// A block of at least `nbytes` (more than 0), nullptr where the source refuses. It begins at a multiple of 64 bytes,
  /// on a page where it is larger than kSmall. Unlocks what is too much or idle only where `may_unlock`.
  void* allocate(size_t nbytes, bool may_unlock = true);
  /// Gives it back.
  void deallocate(void* block, bool may_unlock = true);
  /// What it takes: up to 1/128 more than was asked for, where a block was there.
  size_t size(const void* block) const { return blocks_.at(block).bytes; }

  /// Bytes of pages that are locked now, and of the blocks in use.
  int64_t locked() const { return locked_; }
  int64_t used() const { return used_; }
  /// Seconds after which what nobody asked for is unlocked now.
  double patience() const { return patience_; }
  /// Unlocks what is not in use.
  void release();

 private:
  struct Slab {
    std::byte* data = nullptr;
    Heap heap;
    int64_t blocks = 0;
    double since = 0;  // it is empty
  };
  struct Block {
    size_t bytes = 0;
    Slab* slab = nullptr;
  };
  struct Free {
    void* data = nullptr;
    double since = 0;
  };

  void* lock(size_t bytes, bool may_unlock);
  void* place(size_t bytes, bool may_unlock);
  void unlock(std::multimap<size_t, Free>::iterator it);
  void unlock_idle();
  void unlock_slabs(double before);

  Source& source_;
  std::unordered_map<const void*, Block> blocks_;  // in use
  std::multimap<size_t, Free> free_;               // by size
  std::list<Slab> slabs_;
  double patience_ = kIdleSeconds;
  std::map<size_t, double> idle_since_;  // of sizes that were unlocked for being idle: since when the last was
  int64_t locked_ = 0, used_ = 0, free_bytes_ = 0;
};

}  // namespace strata::memory
