#pragma once
// A kind of memory that no other file knows of: a second heap of the host whose bytes move. While nobody pins a block
// its bytes are "away"; each fetch copies them to a new address, and the last unpin takes them away again and poisons
// what stood there, so that whoever reads without a pin is seen.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "strata/core/error.h"
#include "strata/memory/bounds.h"
#include "strata/memory/ledger.h"

namespace strata::memory {

inline const Tier kSecond = Tier::named("second heap");

class SecondHeap final : public Backend {
 public:
  static SecondHeap& get() {
    static auto* heap = [] {
      auto* h = new SecondHeap;
      register_backend(*h);
      return h;
    }();
    return *heap;
  }

  void* allocate(Device device, size_t nbytes, Tag tag) override {
    ledger_.check_room(static_cast<int64_t>(nbytes), tag);
    auto* b = new Block;
    b->bytes = nbytes;
    b->away = std::make_unique<std::byte[]>(nbytes);
    ledger_.take(device, b, static_cast<int64_t>(nbytes), tag);
    return b;
  }
  void deallocate(Device device, void* block, size_t, Tag) override {
    ledger_.give(device, block);
    auto* b = static_cast<Block*>(block);
    drop(*b);
    delete b;
  }
  void retag(Device, void* block, size_t, Tag, Tag to) override { ledger_.retag(Device::cpu(), block, to); }

  std::byte* fetch(Device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    const std::lock_guard lock(b.mutex);
    if (b.here) {
      ++hits;
    } else {
      check<MemoryError>(!fails, "fetch", "there is no room for ", static_cast<int64_t>(b.bytes), " bytes");
      bring(b);
    }
    ++fetches;
    ++pinned;
    return b.here;
  }
  void leave(Device, void* block, bool written) override {
    Block& b = *static_cast<Block*>(block);
    const std::lock_guard lock(b.mutex);
    if (written) {
      std::memcpy(b.away.get(), b.here, b.bytes);
      ++write_backs;
    } else if (std::memcmp(b.away.get(), b.here, b.bytes) != 0) {
      ++wrong_reads;  // somebody wrote under a pin for reading
    }
    drop(b);
    --pinned;
  }
  void prefetch(Device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    const std::lock_guard lock(b.mutex);
    ++prefetches;
    if (!b.here && !fails) bring(b);
  }
  bool resident(Device, const void* block) override {
    const Block& b = *static_cast<const Block*>(block);
    const std::lock_guard lock(b.mutex);
    return b.here != nullptr;
  }

  Bound bound(Device) override {
    const Stats s = ledger_.stats();
    return {"the second heap", ledger_.limit() ? ledger_.limit() : int64_t{1} << 40, s.live_total};
  }
  int64_t set_limit(Device, int64_t bytes) override { return ledger_.set_limit(bytes); }
  Stats stats(Device) override { return ledger_.stats(); }
  void reset_peak(Device) override { ledger_.reset_peak(); }
  std::vector<BlockInfo> blocks(Device) override { return ledger_.blocks(); }

  std::atomic<int64_t> fetches{0}, hits{0}, write_backs{0}, wrong_reads{0}, prefetches{0};
  std::atomic<int64_t> pinned{0};  // blocks that are held now
  std::atomic<int64_t> near{0}, near_peak{0};  // bytes that are here now, and were at most
  std::atomic<bool> fails{false};              // bytes that are away cannot be brought

 private:
  struct Block {
    mutable std::mutex mutex;
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> away;
    std::byte* here = nullptr;
  };
  SecondHeap() : Backend("second heap", DeviceType::cpu, kSecond, Bytes::movable) {}
  void bring(Block& b) {
    const int64_t now = near += static_cast<int64_t>(b.bytes);
    for (int64_t most = near_peak; now > most && !near_peak.compare_exchange_weak(most, now);) {
    }
    b.here = static_cast<std::byte*>(std::aligned_alloc(64, (b.bytes + 63) / 64 * 64));
    std::memcpy(b.here, b.away.get(), b.bytes);
  }
  void drop(Block& b) {
    if (!b.here) return;
    near -= static_cast<int64_t>(b.bytes);
    std::memset(b.here, 0xff, b.bytes);  // NaN of every floating type
    std::free(b.here);
    b.here = nullptr;
  }

  Ledger ledger_{*this};
};

}  // namespace strata::memory
