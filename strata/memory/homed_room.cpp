// Of a HomedMemory: how near memory becomes free, bytes come and go, and what graphs hold.

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "strata/core/error.h"
#include "strata/memory/homed.h"
#include "strata/memory/homed_inl.h"
#include "strata/memory/pressure.h"

namespace strata::memory {

namespace {
constexpr int64_t kHoles = 4;  // of a bound on near bytes, that much more may be taken by holes between them
}

std::byte* Home::allocate_near(Device device, size_t bytes, Tag tag) {
  return static_cast<std::byte*>(backend(device).allocate(device, bytes, tag));
}
void Home::deallocate_near(Device device, std::byte* near, size_t bytes, Tag tag, std::span<const MomentPtr> after) {
  for (const MomentPtr& m : after) m->order();
  backend(device).deallocate(device, near, bytes, tag);
}

bool HomedMemory::make_room(Lock& lock, Near& n, int64_t more, bool pinning) {
  for (;;) {
    reap(n);
    const int64_t excess = n.excess(more, pinning);
    // Bytes enough, but not in one piece: more leaves, rather than that near memory outgrows its bound by more than
    // holes may take. A pin comes where nothing can leave.
    const bool enough = excess <= 0;
    if (enough && (n.limit == 0 || home_->has_hole(n.device, static_cast<size_t>(more), n.limit + n.limit / kHoles)))
      return true;
    if (!evict(lock, n, enough ? more : excess, pinning)) return enough && pinning;
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

bool HomedMemory::relieve(Device device, int64_t bytes) noexcept {
  if (device.type != this->device || home_->capturing()) return false;
  // Others hold it for moments, or for as long as the card takes to give one of them memory, which is up to all that it
  // was given to do; the thread itself may, far below.
  Lock lock(mutex_, std::try_to_lock);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!lock.owns_lock() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    static_cast<void>(lock.try_lock());  // the loop asks whether it has it
  }
  const auto index = static_cast<size_t>(device.index);
  if (!lock.owns_lock() || index >= near_.size() || near_[index] == nullptr) return false;
  Near& n = *near_[index];
  const int64_t before = n.bytes;
  try {
    while (before - n.bytes < bytes && evict(lock, n, bytes, true)) {
    }
  } catch (const std::exception&) {  // as much as there was
  }
  return n.bytes < before;
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
  while (b.near == nullptr) {
    if (!make_room(lock, n, b.bytes, pinning)) refuse_near(n, b);
    try {
      const NoRelief locked;
      b.near = home_->allocate_near(b.device, static_cast<size_t>(b.bytes), b.tag);
    } catch (const MemoryError&) {
      if (evict(lock, n, b.bytes, pinning)) continue;
      if (!pinning) throw;
      lock.unlock();
      const bool given = memory::relieve(b.device, b.bytes);
      lock.lock();
      if (!given) throw;
    }
  }
  b.near_tag = b.tag;
  n.bytes += b.bytes;
  n.stats.peak = std::max(n.stats.peak, n.bytes);
  const MovedName moved([&] { return b.shown_name(); });
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
  const MovedName moved([&] { return b.shown_name(); });
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
    for (;;) {
      const auto next = std::ranges::find_if(n.wanted, [](const Block* b) { return !b->reserved; });
      if (next == n.wanted.end()) break;
      Block& b = **next;
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
    const bool done = e.near == nullptr &&
                      std::all_of(e.moments.begin(), e.moments.end(), [](const MomentPtr& m) { return m->passed(); });
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
  std::string why;
  for (const auto& [key, b] : blocks_) {
    if (b->near == nullptr || b->device != n.device) continue;
    if (b->pinned) pinned.push_back({0, b->bytes, b->tag, b->holder ? *b->holder : "a tensor of no op"});
    if (b->failure == nullptr) continue;
    failed += b->bytes;
    try {
      std::rethrow_exception(b->failure);
    } catch (const std::exception& e) {
      why = e.what();
    }
  }
  std::sort(pinned.begin(), pinned.end(), [](const BlockInfo& a, const BlockInfo& b) { return a.bytes > b.bytes; });
  std::string text = cat("cannot bring ", wanted.bytes, " bytes", wanted.holder ? cat(" (", *wanted.holder, ")") : "",
                         " of memory '", tier, "' near: at most ", n.limit, " bytes may be (set_near_limit), ", n.bytes,
                         " are, pinned by ", pinned.empty() ? "nobody" : "");
  for (size_t i = 0; i < std::min<size_t>(pinned.size(), 8); ++i)
    text += cat(i ? ", " : "", pinned[i].holder, " (", pinned[i].bytes, ")");
  if (pinned.size() > 8) text += cat(" and ", pinned.size() - 8, " more");
  if (failed > 0) text += cat("; ", failed, " bytes could not be written home: ", why);
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

}  // namespace strata::memory
