#include "strata/memory/homed.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <list>
#include <string>
#include <utility>

#include "strata/core/error.h"

namespace strata::memory {

std::byte* Home::allocate_near(Device device, size_t bytes, Tag tag) {
  return static_cast<std::byte*>(backend(device).allocate(device, bytes, tag));
}
void Home::deallocate_near(Device device, std::byte* near, size_t bytes, Tag tag, std::span<const MomentPtr> after) {
  for (const MomentPtr& m : after) m->order();
  backend(device).deallocate(device, near, bytes, tag);
}

namespace {
using Moments = std::vector<MomentPtr>;

// Whether what comes after it need not wait for it on a thread.
bool is_settled(const MomentPtr& m) {
  return m == nullptr || m->streamed() || m->passed();
}
double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
}  // namespace

// A block is used by one thread at a time, but for those that make room: they look at `pinned`, `gone` and the moments
// again after each wait.
struct HomedMemory::Block {
  Device device;
  size_t nbytes = 0;
  int64_t bytes = 0;  // that it takes, at home and near
  Tag tag = Tag::activation, near_tag = Tag::activation;
  const std::string* holder = nullptr;
  void* room = nullptr;

  std::byte* near = nullptr;
  bool stored = false;   // its room has contents
  bool dirty = false;    // what is near is newer
  bool pinned = false;
  bool leaving = false;  // a thread waits for it to leave
  bool gone = false;
  int graphs = 0;  // that use its address
  std::exception_ptr failure;  // of the copy home: for the next fetch
  MomentPtr arrival, writing;  // copies under way, from and to its room
  Moments left;                // after which nobody uses its address
  Moments busy;                // the copies after which its room may be given back

  std::list<Block*>* in = nullptr;  // the one of Near's lists that it is in
  std::list<Block*>::iterator at, dirty_at;
  bool is_queued = false;  // in Near::dirty

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

HomedMemory::HomedMemory(std::string_view name, DeviceType device, Tier tier, std::unique_ptr<Home> home)
    : Backend(name, device, tier, Bytes::movable), home_(std::move(home)) {}
HomedMemory::~HomedMemory() {
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
  Lock lock(mutex_);
  Near& n = near_of(device);
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
  const auto start = std::chrono::steady_clock::now();
  bool waits = false;
  try {
    if (!hit) {
      bring(lock, n, b, true);
      n.pinned += b.bytes;
    }
    waits = (b.writing && !b.writing->passed()) || (b.arrival && !b.arrival->passed());
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
  if (!hit || waits) n.stats.seconds_waited += seconds_since(start);
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
  Block& b = *static_cast<Block*>(block);
  Lock lock(mutex_);
  try {
    Near& n = near_of(device);
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

// ---- room

bool HomedMemory::make_room(Lock& lock, Near& n, int64_t more, bool pinning) {
  for (;;) {
    reap(n);
    const int64_t excess = n.excess(more, pinning);
    if (excess <= 0) return true;
    if (!evict(lock, n, excess, pinning)) return false;
  }
}

// One block leaves, or something else happened that may have made room. False: nothing can.
bool HomedMemory::evict(Lock& lock, Near& n, int64_t more, bool may_wait) {
  Block* v = nullptr;
  int64_t begun = 0;
  for (auto it = n.used.begin(); v == nullptr && it != n.used.end() && begun < more; ++it) {
    Block& b = **it;
    if (!b.can_leave()) continue;
    if (b.dirty) send(n, b);
    if (b.failure == nullptr && (may_wait || b.is_settled())) v = &b;
    if (!may_wait) begun += b.bytes;
  }
  // Of what was asked for ahead, only a pin may take, and what is needed last.
  for (auto it = n.ahead.rbegin(); may_wait && v == nullptr && it != n.ahead.rend(); ++it) {
    Block& b = **it;
    if (!b.can_leave()) continue;
    if (b.dirty) send(n, b);
    if (b.failure == nullptr) v = &b;
  }
  if (v == nullptr) {
    if (!may_wait) return false;
    if (wait_for_ended(lock, n)) return true;
    if (n.leaving == 0) return false;
    changed_.wait(lock);
    return true;
  }
  const MomentPtr writing = v->writing, arrival = v->arrival;
  const auto result = [](const MomentPtr& m) -> std::exception_ptr {
    try {
      if (m != nullptr && !m->streamed()) m->order();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  };
  std::exception_ptr failure;
  if (v->is_settled()) {
    failure = result(writing);
  } else {
    const std::shared_ptr<Block> keep = blocks_.at(v);
    v->leaving = true, ++n.leaving;
    lock.unlock();
    failure = result(writing);
    result(arrival);  // where it failed, the fetch reads again
    lock.lock();
    v->leaving = false, --n.leaving;
    changed_.notify_all();
    if (v->gone || v->pinned || v->near == nullptr || v->writing != writing || v->arrival != arrival) return true;
  }
  if (failure != nullptr) {
    v->failure = failure;
    v->writing = nullptr;
    v->dirty = true;
  } else {
    drop_near(n, *v);
  }
  return true;
}

bool HomedMemory::wait_for_ended(Lock& lock, Near& n) {
  const auto first = std::find_if(n.ended.begin(), n.ended.end(), [](const auto& e) { return e->near != nullptr; });
  if (first == n.ended.end()) return false;
  const Moments moments = (*first)->moments;
  lock.unlock();
  for (const MomentPtr& m : moments)
    if (!m->streamed()) m->wait();
  lock.lock();
  reap(n);
  return true;
}

void HomedMemory::bring(Lock& lock, Near& n, Block& b, bool pinning) {
  if (!make_room(lock, n, b.bytes, pinning)) refuse_near(n, b);
  while (b.near == nullptr) {
    try {
      b.near = home_->allocate_near(b.device, static_cast<size_t>(b.bytes), b.tag);
    } catch (const MemoryError&) {
      if (!evict(lock, n, b.bytes, pinning)) throw;
    }
  }
  b.near_tag = b.tag;
  n.bytes += b.bytes;
  n.stats.peak = std::max(n.stats.peak, n.bytes);
  try {
    b.arrival = b.stored ? home_->bring(b.device, b.near, b.room, b.nbytes) : home_->ready(b.device);
  } catch (...) {
    drop_near(n, b);
    throw;
  }
  if (!b.stored) return;
  n.stats.bytes_in += static_cast<int64_t>(b.nbytes);
  b.keep_busy(b.arrival);
}

void HomedMemory::send(Near& n, Block& b) {
  n.unqueue_dirty(b);
  try {
    b.writing = home_->send(b.device, b.room, b.near, b.nbytes, b.left);
  } catch (const std::exception&) {
    b.failure = std::current_exception();
    return;
  }
  b.dirty = false;
  b.stored = true;
  n.stats.bytes_out += static_cast<int64_t>(b.nbytes);
  b.keep_busy(b.writing);
}

// Copies that a thread would have to wait for have passed.
void HomedMemory::drop_near(Near& n, Block& b) {
  Moments after = std::move(b.left);
  for (const MomentPtr& m : {b.writing, b.arrival})
    if (m != nullptr && m->streamed()) after.push_back(m);
  b.left.clear();
  b.writing = b.arrival = nullptr;
  b.dirty = false;
  n.unqueue_dirty(b);
  b.leave_list();
  n.bytes -= b.bytes;
  home_->deallocate_near(b.device, std::exchange(b.near, nullptr), static_cast<size_t>(b.bytes), b.near_tag, after);
}

void HomedMemory::tidy(Lock& lock, Near& n) {
  if (home_->capturing()) return;
  try {
    reap(n);
    for (int64_t excess = n.excess(0, false); excess > 0; excess = n.excess(0, false))
      if (!evict(lock, n, excess, false)) break;
    while (n.dirty_bytes > n.cap() / 4) send(n, *n.dirty.front());
    while (!n.wanted.empty()) {
      Block& b = *n.wanted.front();
      if (!make_room(lock, n, b.bytes, false)) break;
      b.leave_list();
      bring(lock, n, b, false);
      b.enter(n.ahead);
      ++n.stats.prefetches;
    }
  } catch (const std::exception&) {  // what is left undone is done, or reported, by the fetch that needs it
  }
}

void HomedMemory::reap(Near& n) {
  for (auto it = n.ended.begin(); it != n.ended.end();) {
    Ended& e = **it;
    if (e.near != nullptr && std::all_of(e.moments.begin(), e.moments.end(), is_settled)) {
      Moments after = e.moments;
      std::erase_if(after, [](const MomentPtr& m) { return !m->streamed(); });
      n.bytes -= e.bytes;
      home_->deallocate_near(e.device, std::exchange(e.near, nullptr), static_cast<size_t>(e.bytes), e.near_tag, after);
    }
    const bool done = e.near == nullptr && std::all_of(e.moments.begin(), e.moments.end(),
                                                       [](const MomentPtr& m) { return m->passed(); });
    if (done) home_->deallocate(e.device, e.room, e.nbytes);
    it = done ? n.ended.erase(it) : std::next(it);
  }
}

// Waits for all that was given back.
void HomedMemory::drain(Lock& lock, Near& n) {
  Moments moments;
  for (const auto& e : n.ended) moments.insert(moments.end(), e->moments.begin(), e->moments.end());
  lock.unlock();
  for (const MomentPtr& m : moments) m->wait();
  lock.lock();
  reap(n);
}

void HomedMemory::refuse_near(const Near& n, const Block& wanted) const {
  std::vector<BlockInfo> pinned;
  int64_t failed = 0;
  for (const auto& [key, b] : blocks_) {
    if (b->near == nullptr || b->device != n.device) continue;
    if (b->pinned) pinned.push_back({0, b->bytes, b->tag, b->holder ? *b->holder : "a tensor of no op"});
    if (b->failure != nullptr) failed += b->bytes;
  }
  std::sort(pinned.begin(), pinned.end(), [](const BlockInfo& a, const BlockInfo& b) { return a.bytes > b.bytes; });
  std::string text = cat("cannot bring ", wanted.bytes, " bytes", wanted.holder ? cat(" (", *wanted.holder, ")") : "",
                         " of memory '", tier, "' near: at most ", n.limit, " bytes may be (set_near_limit), ", n.bytes,
                         " are, pinned by ", pinned.empty() ? "nobody" : "");
  for (size_t i = 0; i < std::min<size_t>(pinned.size(), 8); ++i)
    text += cat(i ? ", " : "", pinned[i].holder, " (", pinned[i].bytes, ")");
  if (pinned.size() > 8) text += cat(" and ", pinned.size() - 8, " more");
  if (failed > 0) text += cat("; ", failed, " bytes could not be written home");
  throw MemoryError("fetch", text);
}

// ---- graphs

// Who writes what in a replay nobody says: it counts as written.
void HomedMemory::hold_for_graph(Near& n, Block& b) {
  auto hold = std::make_shared<GraphHold>(*this, blocks_.at(&b));
  home_->with_captured(b.device, [hold] { hold->before_replay(); });
  ++b.graphs;
  n.unqueue_dirty(b);
  hold->active = true;
}
void HomedMemory::end_hold(GraphHold& hold) noexcept {
  const Lock lock(mutex_);
  Block& b = *hold.block;
  --b.graphs;
  if (b.gone) return;
  b.dirty = true;
  try {
    if (hold.last) b.left.push_back(hold.last());
  } catch (const Error&) {  // the device has failed
  }
  if (!b.pinned && b.near != nullptr) near_of(b.device).queue_dirty(b);
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
