#pragma once
// Memory whose bytes are at home in one place and near, where a device computes with them, while they are used: the one
// movable backend, and what it asks of a home. docs/design/tiers.md.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "strata/memory/ledger.h"
#include "strata/memory/tiers.h"

namespace strata {
struct Storage;
}

namespace strata::memory {

/// A point that work comes to: the end of a copy, or of what a thread had queued. Any thread may call anything.
class Moment {
 public:
  virtual ~Moment() = default;
  /// Whether it has passed, well or not. Never waits and never throws; false where nobody can tell now.
  virtual bool passed() = 0;
  /// Returns when it has passed. Never throws.
  virtual void wait() = 0;
  /// What is queued on the calling thread's current stream from now on comes after it: a stream waits, or the thread
  /// itself. Throws the IoError or DeviceError of a copy that failed.
  virtual void order() = 0;
  /// Whether order() neither makes the thread wait nor reports what a medium did: streams wait.
  virtual bool streamed() const { return false; }
};
using MomentPtr = std::shared_ptr<Moment>;

/// Where the blocks of a HomedMemory live while they are not near, and who copies. Any thread may call anything; calls
/// for one block come one at a time. Copies are begun, never waited for, and never throw for what their medium does:
/// their Moment does.
class Home {
 public:
  virtual ~Home() = default;

  /// Bytes that a block takes, at home and near: whole pages.
  virtual size_t room_bytes(size_t nbytes) const { return (nbytes + 4095) / 4096 * 4096; }
  /// Room for a block, whose contents are undefined. Throws MemoryError.
  virtual void* allocate(Device device, size_t nbytes) = 0;
  /// Gives it back; every copy from and to it has passed.
  virtual void deallocate(Device device, void* room, size_t nbytes) = 0;
  /// Begins to copy a room's `nbytes` to near memory.
  virtual MomentPtr bring(Device device, std::byte* near, void* room, size_t nbytes) = 0;
  /// Begins to copy near memory to the room, once all of `after` have passed.
  virtual MomentPtr send(Device device, void* room, const std::byte* near, size_t nbytes,
                         std::span<const MomentPtr> after) = 0;

  /// Whether near memory has a hole of so many bytes, or may grow by them without reaching beyond `limit` bytes from its
  /// beginning. What it has grown to it keeps.
  virtual bool has_hole(Device /*device*/, size_t /*bytes*/, int64_t /*limit*/) { return true; }
  /// Near memory of room_bytes(nbytes), uninitialised: the device's own. Throws MemoryError.
  virtual std::byte* allocate_near(Device device, size_t bytes, Tag tag);
  /// Gives it back: whoever has it next comes after all of `after`, which are streamed().
  virtual void deallocate_near(Device device, std::byte* near, size_t bytes, Tag tag, std::span<const MomentPtr> after);
  /// From when on near memory that was just allocated may be used; nullptr: now.
  virtual MomentPtr ready(Device) { return nullptr; }
  /// Gives, whenever it is called, the point that the calling thread's current stream of now has come to then. Empty
  /// where work is done when it was queued.
  virtual std::function<MomentPtr()> point(Device) { return {}; }

  /// The address of a room's bytes in the host's memory, where the processor may read and write them; nullptr: it has
  /// none.
  virtual std::byte* address(void* /*room*/) const { return nullptr; }

  /// Whether the thread's work is being captured, to be run later at the same addresses.
  virtual bool capturing() const { return false; }
  /// Calls before_replay() before each run of what the thread is capturing, which owns it.
  virtual void with_captured(Device, std::function<void()> /*before_replay*/) {}

  /// What bounds it, and how much of that is taken.
  virtual Bound bound(Device device) = 0;
  /// Returns what is kept for reuse.
  virtual void release_cached() {}
};

/// Movable memory of a tier: blocks are at home in a Home, and near while they are pinned. What nobody pins stays near
/// as long as the bound allows (set_near_limit()), and leaves in order of last use. A block that was written is copied
/// home before it leaves; copies begin as soon as blocks of a quarter of the bound would need one. A block that nobody
/// has written has no contents, and moves nothing.
class HomedMemory : public Backend {
 public:
  HomedMemory(std::string_view name, DeviceType device, Tier tier, std::unique_ptr<Home> home);
  ~HomedMemory() override;

  void* allocate(Device device, size_t nbytes, Tag tag) override;
  void deallocate(Device device, void* block, size_t nbytes, Tag tag) override;
  void retag(Device device, void* block, size_t nbytes, Tag from, Tag to) override;
  void copy_in(Device device, void* to, const void* from, size_t nbytes) override;
  void copy_out(Device device, void* to, const void* from, size_t nbytes) override;

  /// Throws MemoryError where the bound cannot be kept because what is near is pinned, naming by whom, or where the
  /// device has no memory for it; IoError where the block cannot be read, or could not be written when it last left:
  /// then its bytes are still near, and the next fetch finds them there. Throws DeviceError where a CUDA graph is being
  /// captured and the bytes are not near; those that are stay where they are as long as the graph lives.
  std::byte* fetch(Device device, void* block) override;
  void leave(Device device, void* block, bool written) override;
  /// Blocks come in the order in which they were asked for, as room appears, and do not leave for what is asked for
  /// later. Of a block that is pinned: the thread uses it too, for a graph if it captures one.
  void prefetch(Device device, void* block) override;
  bool resident(Device device, const void* block) override;

  Bound bound(Device device) override;
  /// Of the bytes at home.
  int64_t set_limit(Device device, int64_t bytes) override;
  Stats stats(Device device) override;
  void reset_peak(Device device) override;
  std::vector<BlockInfo> blocks(Device device) override;
  /// Everything that nobody pins goes home.
  void release_cached() override;

  /// @name Blocks that somebody has for himself (strata/memory/reserved.h)
  /// While a block is reserved, fetch() of it waits, and prefetch() of it stays in the queue. Whoever has it is one
  /// thread at a time, and calls nothing else for the block.
  /// @{
  /// The block of a storage of this memory; nullptr while it is pinned.
  void* block_of(Storage& storage);
  /// False where it is pinned or reserved already. What is newer near than at home is on its way from now on.
  bool reserve(void* block);
  /// Where its bytes would be at home; nullptr where the home has no addresses.
  std::byte* home_address(void* block);
  /// Waits until the newest bytes are at home and nothing copies from or to it; they are near no longer. Throws the
  /// IoError of a copy home that failed: the bytes are near then, as they were.
  void settle_home(void* block);
  /// Others have it again. `written`: there are new bytes at home. With `failure` the next fetch() throws that.
  void release(void* block, bool written, std::exception_ptr failure);
  /// @}

  /// strata/memory/tiers.h
  int64_t set_near_limit(Device device, int64_t bytes);
  NearStats near_stats(Device device);

 private:
  struct Block;
  struct Ended;
  struct Near;
  struct GraphHold;
  struct Relief;
  using Lock = std::unique_lock<std::mutex>;

  // Whether block_of() asks, which is told then.
  static bool is_asked(void* block);
  Near& near_of(Device device);
  void pin(Near& n, Block& b);
  void unpin(Near& n, Block& b);
  // Room near: they take a block's near memory, or give it back. With `may_wait` the lock is let go meanwhile.
  bool make_room(Lock& lock, Near& n, int64_t more, bool pinning);
  bool evict(Lock& lock, Near& n, int64_t more, bool may_wait);
  bool relieve(Device device, int64_t bytes) noexcept;
  bool wait_for_ended(Lock& lock, Near& n);
  void bring(Lock& lock, Near& n, Block& b, bool pinning);
  void send(Near& n, Block& b);
  void drop_near(Near& n, Block& b);
  void order(Block& b);
  // After each change: what goes home, what comes, what ends.
  void tidy(Lock& lock, Near& n);
  void reap(Near& n);
  void drain(Lock& lock, Near& n);
  void hold_for_graph(Near& n, Block& b);
  void end_hold(GraphHold& hold) noexcept;
  [[noreturn]] void refuse_near(const Near& n, const Block& b) const;

  const std::unique_ptr<Home> home_;
  Ledger ledger_{*this};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Near>> near_;  // by device
  std::unordered_map<const void*, std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Relief> relief_;
};

namespace detail {
// The tier `disk` of the host.
Backend& host_disk_memory();
}  // namespace detail

}  // namespace strata::memory
