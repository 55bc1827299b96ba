#include "strata/memory/reserved.h"

#include "strata/memory/homed.h"
#include "strata/memory/homed_inl.h"

namespace strata::memory {
namespace {
thread_local void** t_asked = nullptr;
}

// ---- of a HomedMemory

// Core hands out a storage's block in calls of its backend only: this is one, of no effect.
void* HomedMemory::block_of(Storage& storage) {
  void* block = nullptr;
  void** const before = std::exchange(t_asked, &block);
  storage.prefetch();
  t_asked = before;
  return block;
}
bool HomedMemory::is_asked(void* block) {
  if (t_asked != nullptr) *t_asked = block;
  return t_asked != nullptr;
}

bool HomedMemory::reserve(void* block) {
  Block& b = *static_cast<Block*>(block);
  const Lock lock(mutex_);
  if (b.pinned || b.reserved || b.graphs > 0) return false;
  b.reserved = true;
  if (b.near != nullptr && b.dirty && b.failure == nullptr && !b.leaving) send(near_of(b.device), b);
  return true;
}

std::byte* HomedMemory::home_address(void* block) {
  return home_->address(static_cast<Block*>(block)->room);
}

void HomedMemory::settle_home(void* block) {
  Block& b = *static_cast<Block*>(block);
  Lock lock(mutex_);
  Near& n = near_of(b.device);
  for (;;) {
    changed_.wait(lock, [&] { return !b.leaving; });
    if (b.failure != nullptr) std::rethrow_exception(std::exchange(b.failure, nullptr));
    if (b.near != nullptr && b.dirty) {
      send(n, b);
      continue;
    }
    Moments moments = b.busy;
    for (const MomentPtr& m : {b.arrival, b.writing})
      if (m != nullptr) moments.push_back(m);
    std::erase_if(moments, [](const MomentPtr& m) { return m->passed(); });
    if (moments.empty()) break;
    lock.unlock();
    for (const MomentPtr& m : moments) m->wait();
    lock.lock();
  }
  if (b.near == nullptr) return;
  if (b.writing != nullptr) {
    try {
      b.writing->order();  // it has passed: this only says how
    } catch (...) {
      b.writing = nullptr;
      b.dirty = true;
      n.queue_dirty(b);
      throw;
    }
  }
  drop_near(n, b);
}

void HomedMemory::release(void* block, bool written, std::exception_ptr failure) {
  Block& b = *static_cast<Block*>(block);
  Lock lock(mutex_);
  b.reserved = false;
  b.stored = b.stored || written;
  if (failure != nullptr) b.failure = std::move(failure);
  changed_.notify_all();
  tidy(lock, near_of(b.device));
}

// ---- for its users

Reserved Reserved::of(const Ref<Storage>& storage) {
  Reserved r;
  if (!storage || storage->nbytes == 0 || storage->device.is_meta() || storage->release != nullptr) return r;
  auto* memory = dynamic_cast<HomedMemory*>(&storage->backend());
  if (memory == nullptr) return r;
  void* block = memory->block_of(*storage);
  if (block == nullptr || !memory->reserve(block)) return r;
  r.storage_ = storage;
  r.memory_ = memory;
  r.block_ = block;
  return r;
}

Reserved& Reserved::operator=(Reserved&& other) noexcept {
  if (this == &other) return *this;
  release();
  storage_ = std::move(other.storage_);
  memory_ = std::exchange(other.memory_, nullptr);
  block_ = std::exchange(other.block_, nullptr);
  written_ = std::exchange(other.written_, false);
  return *this;
}

std::byte* Reserved::home() const {
  return memory_->home_address(block_);
}
void Reserved::settle_home() {
  memory_->settle_home(block_);
}
void Reserved::release(std::exception_ptr failure) noexcept {
  if (memory_ == nullptr) return;
  std::exchange(memory_, nullptr)->release(block_, written_, std::move(failure));
  block_ = nullptr;
  storage_ = {};
}

}  // namespace strata::memory
