#include "strata/memory/homed.h"

#include <exception>
#include <utility>

#include "strata/core/error.h"
#include "strata/memory/homed_inl.h"

namespace strata::memory {

HomedMemory::HomedMemory(std::string_view name, DeviceType device, Tier tier, std::unique_ptr<Home> home)
    : Backend(name, device, tier, Bytes::movable), home_(std::move(home)), relief_(std::make_shared<Relief>(*this)) {
  add_reliever(relief_);
}
HomedMemory::~HomedMemory() {
  relief_.reset();
  Lock lock(mutex_);
  for (const auto& n : near_)
    if (n) drain(lock, *n);
}

HomedMemory::Near& HomedMemory::near_of(Device device) {
  const auto index = static_cast<size_t>(device.index);
  if (index >= near_.size()) near_.resize(index + 1);
  if (near_[index] == nullptr) {
    auto n = std::make_unique<Near>();
    n->device = device;
    n->spare = backend(device).bound(device).limit / 8;
    near_[index] = std::move(n);
  }
  return *near_[index];
}

// ---- blocks

void* HomedMemory::allocate(Device device, size_t nbytes, Tag tag) {
  const auto bytes = static_cast<int64_t>(home_->room_bytes(nbytes));
  ledger_.check_room(bytes, tag);
  auto b = std::make_shared<Block>();
  b->device = device, b->nbytes = nbytes, b->bytes = bytes, b->tag = tag, b->holder = holder();
  b->take_name();
  Lock lock(mutex_);
  Near& n = near_of(device);
  reap(n);
  // Locking pages takes its time.
  lock.unlock();
  try {
    b->room = home_->allocate(device, nbytes);
  } catch (const MemoryError&) {
    lock.lock();
    if (n.ended.empty()) throw;
    drain(lock, n);  // rooms may be free by then
    b->room = home_->allocate(device, nbytes);
    lock.unlock();
  }
  lock.lock();
  Block* block = b.get();
  blocks_.emplace(block, std::move(b));
  lock.unlock();
  ledger_.take(device, block, bytes, tag);
  return block;
}

void HomedMemory::deallocate(Device device, void* block, size_t, Tag) {
  ledger_.give(device, block);
  Lock lock(mutex_);
  const auto found = blocks_.find(block);
  const std::shared_ptr<Block> b = std::move(found->second);
  blocks_.erase(found);
  Near& n = near_of(device);
  n.unqueue_dirty(*b);
  b->leave_list();
  b->gone = true;
  auto e = std::make_shared<Ended>();
  *e = {device, b->nbytes, b->bytes, b->near_tag, std::exchange(b->near, nullptr), b->room, std::move(b->busy)};
  e->moments.insert(e->moments.end(), b->left.begin(), b->left.end());
  if (b->arrival != nullptr) e->moments.push_back(b->arrival);
  n.ended.push_back(std::move(e));
  tidy(lock, n);
}

void HomedMemory::retag(Device device, void* block, size_t, Tag, Tag to) {
  ledger_.retag(device, block, to);
  const Lock lock(mutex_);
  static_cast<Block*>(block)->tag = to;
}
void HomedMemory::copy_in(Device device, void* to, const void* from, size_t nbytes) {
  backend(device).copy_in(device, to, from, nbytes);
}
void HomedMemory::copy_out(Device device, void* to, const void* from, size_t nbytes) {
  backend(device).copy_out(device, to, from, nbytes);
}

// ---- pins

void HomedMemory::pin(Near& n, Block& b) {
  n.pass_over(b);
  b.leave_list();
  n.unqueue_dirty(b);
  b.pinned = true;
  if (b.near != nullptr) n.pinned += b.bytes;
}
void HomedMemory::unpin(Near& n, Block& b) {
  b.pinned = false;
  if (b.near == nullptr) return;
  n.pinned -= b.bytes;
  b.enter(n.used);
  n.queue_dirty(b);
}

std::byte* HomedMemory::fetch(Device device, void* block) {
  Block& b = *static_cast<Block*>(block);
  const double asked = host_seconds();
  Lock lock(mutex_);
  Near& n = near_of(device);
  b.take_name();
  const bool was_reserved = b.reserved;
  changed_.wait(lock, [&] { return !b.reserved; });
  if (b.refusal != nullptr) std::rethrow_exception(std::exchange(b.refusal, nullptr));
  if (b.failure != nullptr) std::rethrow_exception(std::exchange(b.failure, nullptr));
  if (home_->capturing()) {
    check<DeviceError>(b.near != nullptr, "fetch", "a tensor of ", static_cast<int64_t>(b.nbytes), " bytes",
                       b.holder ? cat(" (", *b.holder, ")") : std::string(), " in memory '", tier,
                       "' is not near: a CUDA graph that is being captured cannot bring it. Pin it before the capture, "
                       "or run the function once under a larger set_near_limit()");
    hold_for_graph(n, b);
    pin(n, b);
    return b.near;
  }
  ++n.stats.fetches;
  const bool hit = b.near != nullptr;
  n.stats.hits += hit;
  pin(n, b);
  bool waits = was_reserved, stands = was_reserved;  // for bytes; the thread itself
  try {
    if (!hit) {
      bring(lock, n, b, true);
      n.pinned += b.bytes;
    }
    waits = waits || (b.writing && !b.writing->passed()) || (b.arrival && !b.arrival->passed());
    stands = stands || !b.is_settled();
    lock.unlock();
    order(b);
    lock.lock();
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    unpin(n, b);
    // What was to arrive is not there; what was to leave still is.
    if (b.arrival != nullptr) drop_near(n, b);
    throw;
  }
  n.stats.waits += waits;
  if (!hit || waits) n.stats.seconds_waited += host_seconds() - asked;
  if (stands && transfers_wanted())
    note_transfer({TransferKind::wait, "waiting", b.shown_name(), asked, host_seconds(), b.stored ? b.bytes : 0});
  return b.near;
}

// What the thread queues from now on comes after all that moved and used the pinned block. The lock is not held.
void HomedMemory::order(Block& b) {
  Lock lock(mutex_);
  const Moments left = b.left;
  const MomentPtr writing = b.writing, arrival = b.arrival;
  lock.unlock();
  for (const MomentPtr& m : left) m->order();
  try {
    if (writing != nullptr) writing->order();
  } catch (...) {
    lock.lock();
    b.writing = nullptr;
    b.dirty = true;
    throw;
  }
  if (arrival != nullptr) arrival->order();
  lock.lock();
  b.left.erase(b.left.begin(), b.left.begin() + static_cast<std::ptrdiff_t>(left.size()));
  b.writing = b.arrival = nullptr;
}

void HomedMemory::leave(Device device, void* block, bool written) {
  Block& b = *static_cast<Block*>(block);
  Lock lock(mutex_);
  Near& n = near_of(device);
  b.dirty = b.dirty || written;
  try {
    if (!home_->capturing())
      if (const auto point = home_->point(device)) b.left.push_back(point());
  } catch (const Error&) {  // the device has failed, as whoever asks next is told
  }
  unpin(n, b);
  tidy(lock, n);
}

void HomedMemory::prefetch(Device device, void* block) {
  if (is_asked(block)) return;
  Block& b = *static_cast<Block*>(block);
  Lock lock(mutex_);
  try {
    Near& n = near_of(device);
    b.take_name();
    if (home_->capturing()) {
      if (b.pinned) hold_for_graph(n, b);
      return;
    }
    if (b.pinned || b.in == &n.ahead || b.in == &n.wanted || b.bytes > n.cap()) return;
    if (b.near != nullptr) {
      b.enter(n.ahead);
    } else if (b.stored) {
      b.enter(n.wanted);
    }
    tidy(lock, n);
  } catch (const std::exception&) {  // it was advice
  }
}

bool HomedMemory::resident(Device, const void* block) {
  const Block& b = *static_cast<const Block*>(block);
  const Lock lock(mutex_);
  return b.near != nullptr && is_settled(b.arrival);
}

// ---- what is said of it

Bound HomedMemory::bound(Device device) {
  const Bound home = home_->bound(device);
  if (ledger_.limit() == 0) return home;
  const Bound own{cat("the limit of memory '", tier, "'"), ledger_.limit(), ledger_.stats().live_total};
  return own.free() < home.free() ? own : home;
}
int64_t HomedMemory::set_limit(Device, int64_t bytes) {
  return ledger_.set_limit(bytes);
}
Stats HomedMemory::stats(Device) {
  return ledger_.stats();
}
void HomedMemory::reset_peak(Device) {
  ledger_.reset_peak();
}
std::vector<BlockInfo> HomedMemory::blocks(Device) {
  return ledger_.blocks();
}
void HomedMemory::release_cached() {
  if (home_->capturing()) return;
  Lock lock(mutex_);
  for (size_t i = 0; i < near_.size(); ++i) {
    if (near_[i] == nullptr) continue;
    Near& n = *near_[i];
    const auto can_leave = [](const Block* b) { return b->can_leave(); };
    while (std::any_of(n.used.begin(), n.used.end(), can_leave) ||
           std::any_of(n.ahead.begin(), n.ahead.end(), can_leave))
      evict(lock, n, n.bytes, true);
    drain(lock, n);
  }
  lock.unlock();
  home_->release_cached();
}
int64_t HomedMemory::set_near_limit(Device device, int64_t bytes) {
  check(bytes >= 0, "set_near_limit", "needs a number of bytes, or 0 for none; got ", bytes);
  Lock lock(mutex_);
  Near& n = near_of(device);
  const int64_t previous = std::exchange(n.limit, bytes);
  tidy(lock, n);
  return previous;
}
NearStats HomedMemory::near_stats(Device device) {
  const Lock lock(mutex_);
  const Near& n = near_of(device);
  NearStats s = n.stats;
  s.limit = n.limit, s.bytes = n.bytes, s.pinned = n.pinned;
  return s;
}

}  // namespace strata::memory
