#pragma once
// What a HomedMemory knows of its blocks and of a device's near memory.

#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "strata/memory/homed.h"
#include "strata/memory/pressure.h"
#include "strata/memory/transfers.h"

namespace strata::memory {

using Moments = std::vector<MomentPtr>;

// Whether what comes after it need not wait for it on a thread.
inline bool is_settled(const MomentPtr& m) {
  return m == nullptr || m->streamed() || m->passed();
}

// A block is used by one thread at a time, but for those that make room: they look at `pinned`, `gone` and the moments
// again after each wait.
struct HomedMemory::Block {
  Device device;
  size_t nbytes = 0;
  int64_t bytes = 0;  // that it takes, at home and near
  Tag tag = Tag::activation, near_tag = Tag::activation;
  const std::string* holder = nullptr;
  std::string name;  // for a log: what a MovedName said of it last
  void* room = nullptr;

  std::byte* near = nullptr;
  bool stored = false;  // its room has contents
  bool dirty = false;   // what is near is newer
  bool pinned = false;
  bool leaving = false;   // a thread waits for it to leave
  bool reserved = false;  // one has it for himself
  bool gone = false;
  int graphs = 0;              // that use its address
  std::exception_ptr failure;  // of the copy home: for the next fetch
  std::exception_ptr refusal;  // of who had it for himself: the same, until the next who has it
  MomentPtr arrival, writing;  // copies under way, from and to its room
  Moments left;                // after which nobody uses its address
  Moments busy;                // the copies after which its room may be given back

  std::list<Block*>* in = nullptr;  // the one of Near's lists that it is in
  std::list<Block*>::iterator at, dirty_at;
  bool is_queued = false;  // in Near::dirty

  // Asked for, or written, under a name: what comes of that is told under it, whoever's turn makes it happen.
  void take_name() {
    if (transfers_wanted() && !moved_name().empty()) name = moved_name();
  }
  std::string shown_name() const {
    if (!name.empty()) return name;
    return holder != nullptr && !holder->empty() ? *holder : std::string(name_of(tag));
  }
  void enter(std::list<Block*>& list) {
    leave_list();
    at = list.insert(list.end(), this);
    in = &list;
  }
  void leave_list() {
    if (in != nullptr) in->erase(at);
    in = nullptr;
  }
  bool is_settled() const { return memory::is_settled(writing) && memory::is_settled(arrival); }
  bool can_leave() const { return !leaving && graphs == 0 && failure == nullptr; }
  void keep_busy(const MomentPtr& m) {
    std::erase_if(busy, [](const MomentPtr& old) { return old->passed(); });
    if (m != nullptr) busy.push_back(m);
  }
};

// A block that was given back while bytes were under way.
struct HomedMemory::Ended {
  Device device;
  size_t nbytes = 0;
  int64_t bytes = 0;
  Tag near_tag = Tag::activation;
  std::byte* near = nullptr;
  void* room = nullptr;
  Moments moments;
};

struct HomedMemory::Near {
  Device device;
  int64_t limit = 0;
  int64_t spare = 0;  // for what nobody pins, where there is no limit
  int64_t bytes = 0, pinned = 0;
  int leaving = 0;
  std::list<Block*> used;    // near, by last use
  std::list<Block*> ahead;   // near or coming, to be used in this order
  std::list<Block*> wanted;  // to come when there is room, in this order
  std::list<Block*> dirty;   // those near whose copy home has not begun, by last use
  int64_t dirty_bytes = 0;
  std::list<std::shared_ptr<Ended>> ended;
  NearStats stats;

  int64_t cap() const { return limit != 0 ? limit : spare; }
  // Bytes that have to leave before `more` come; those of a pin have only the bound that was set.
  int64_t excess(int64_t more, bool pinning) const {
    if (limit != 0) return bytes + more - limit;
    return pinning ? 0 : bytes - pinned + more - spare;
  }
  void queue_dirty(Block& b) {
    if (b.is_queued || !b.dirty || b.graphs > 0) return;
    b.dirty_at = dirty.insert(dirty.end(), &b);
    b.is_queued = true;
    dirty_bytes += b.bytes;
  }
  void unqueue_dirty(Block& b) {
    if (!b.is_queued) return;
    dirty.erase(b.dirty_at);
    b.is_queued = false;
    dirty_bytes -= b.bytes;
  }
  // Who passes over what was asked for before takes another way: that is no longer kept for its turn.
  void pass_over(const Block& b) {
    if (b.in == &ahead)
      while (ahead.front() != &b) ahead.front()->enter(used);
    if (b.in == &wanted)
      while (wanted.front() != &b) wanted.front()->leave_list();
  }
};

// Asked when a request of the device's own memory finds no room.
struct HomedMemory::Relief final : Reliever {
  explicit Relief(HomedMemory& m) : memory(m) {}
  bool relieve(Device device, int64_t bytes) noexcept override { return memory.relieve(device, bytes); }
  HomedMemory& memory;
};

// A captured graph's hold on a block: the address stays while it lives.
struct HomedMemory::GraphHold {
  GraphHold(HomedMemory& m, std::shared_ptr<Block> b) : memory(m), block(std::move(b)) {}
  ~GraphHold() {
    if (active) memory.end_hold(*this);
  }
  GraphHold(const GraphHold&) = delete;
  void before_replay() {
    Moments all;
    {
      const std::lock_guard lock(memory.mutex_);
      all = block->left;
      for (const MomentPtr& m : {block->arrival, block->writing})
        if (m != nullptr) all.push_back(m);
    }
    for (const MomentPtr& m : all) m->order();
    last = memory.home_->point(block->device);
  }

  HomedMemory& memory;
  std::shared_ptr<Block> block;
  std::function<MomentPtr()> last;  // the end of the last run
  bool active = false;
};

}  // namespace strata::memory
