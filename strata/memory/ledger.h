#pragma once
// What a backend counts, so that reports, timelines and error texts know its blocks.

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "strata/core/backend.h"

namespace strata::memory {

/// The numbers of Stats. Whoever owns it locks.
struct Accounts {
  Stats s;

  /// A block was taken, or given back.
  void take(int64_t bytes, Tag tag);
  void give(int64_t bytes, Tag tag);
  /// It counts under another tag.
  void retag(int64_t bytes, Tag from, Tag to);
  /// So much is reserved now.
  void reserve(int64_t bytes);
  /// The peaks start again from what is in use now.
  void reset_peak();
};

/// The books of a backend that keeps no heap of its own: counts, blocks, a limit, what a Timeline hears. Any thread may
/// call anything.
class Ledger {
 public:
  explicit Ledger(const Backend& backend) : backend_(backend) {}
  /// Throws the MemoryError of a request that would pass the limit, or that the system refused (`refused`).
  void check_room(int64_t bytes, Tag tag, bool refused = false);
  /// A block was taken for holder(), or given back, or counts under another tag.
  void take(Device device, const void* block, int64_t bytes, Tag tag);
  void give(Device device, const void* block);
  void retag(Device device, const void* block, Tag to);
  /// So much is reserved now: blocks, and what is kept for reuse.
  void reserve(int64_t bytes);

  /// @name What Backend's functions of these names say
  /// @{
  Stats stats() const;
  void reset_peak();
  std::vector<BlockInfo> blocks() const;
  int64_t set_limit(int64_t bytes);
  /// @}
  /// 0 for none.
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    int64_t bytes;
    Tag tag;
    const std::string* holder;
  };
  std::vector<BlockInfo> list() const;

  const Backend& backend_;
  mutable std::mutex mutex_;
  Accounts accounts_;
  std::map<const void*, Block> blocks_;
  std::atomic<int64_t> limit_{0};
};

}  // namespace strata::memory
