#include "strata/memory/locked_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace strata::memory {

LockedPool::~LockedPool() {
  release();
}

void* LockedPool::allocate(size_t nbytes, bool may_unlock) {
  if (may_unlock) unlock_idle();
  Block b;
  void* data = nullptr;
  if (nbytes <= kSmall) {
    b.bytes = (nbytes + 63) / 64 * 64;
    data = place(b.bytes, may_unlock);
    if (data != nullptr)
      b.slab = &*std::find_if(slabs_.begin(), slabs_.end(),
                              [&](const Slab& s) { return data >= s.data && data < s.data + kSlab; });
  } else {
    b.bytes = (nbytes + kPage - 1) / kPage * kPage;
    if (const auto it = free_.lower_bound(b.bytes); it != free_.end() && it->first <= b.bytes + b.bytes / 128) {
      b.bytes = it->first;
      data = it->second.data;
      free_bytes_ -= static_cast<int64_t>(b.bytes);
      free_.erase(it);
    } else {
      if (const auto known = idle_since_.find(b.bytes); known != idle_since_.end()) {
        const double gap = source_.now() - known->second;
        if (gap <= kLongestIdle / 2) patience_ = std::max(patience_, 2 * gap);
        idle_since_.erase(known);
      }
      data = lock(b.bytes, may_unlock);
    }
  }
  if (data == nullptr) return nullptr;
  used_ += static_cast<int64_t>(b.bytes);
  blocks_.emplace(data, b);
  return data;
}

void LockedPool::deallocate(void* block, bool may_unlock) {
  const auto it = blocks_.find(block);
  const Block b = it->second;
  blocks_.erase(it);
  used_ -= static_cast<int64_t>(b.bytes);
  if (b.slab != nullptr) {
    b.slab->heap.remove(static_cast<std::byte*>(block) - b.slab->data);
    if (--b.slab->blocks == 0) b.slab->since = source_.now();
  } else {
    free_.emplace(b.bytes, Free{block, source_.now()});
    free_bytes_ += static_cast<int64_t>(b.bytes);
  }
  if (may_unlock) unlock_idle();
}

void LockedPool::release() {
  while (!free_.empty()) unlock(free_.begin());
  unlock_slabs(std::numeric_limits<double>::infinity());
}

void* LockedPool::lock(size_t bytes, bool may_unlock) {
  // The oldest go first, so that sizes which are not asked for any more do not pile up.
  const int64_t kept = std::max(kKept, used_ / 4);
  while (may_unlock && !free_.empty() && free_bytes_ > kept)
    unlock(std::min_element(free_.begin(), free_.end(),
                            [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
  void* data = source_.lock(bytes);
  if (data == nullptr && may_unlock && locked_ > used_) {
    release();
    data = source_.lock(bytes);
  }
  if (data != nullptr) locked_ += static_cast<int64_t>(bytes);
  return data;
}

void* LockedPool::place(size_t bytes, bool may_unlock) {
  auto slab = std::find_if(slabs_.begin(), slabs_.end(), [&](const Slab& s) {
    return s.heap.top_after(static_cast<int64_t>(bytes)) <= static_cast<int64_t>(kSlab);
  });
  if (slab == slabs_.end()) {
    void* data = lock(kSlab, may_unlock);
    if (data == nullptr) return nullptr;
    slab = slabs_.emplace(slabs_.end());
    slab->data = static_cast<std::byte*>(data);
  }
  ++slab->blocks;
  return slab->data + slab->heap.place(static_cast<int64_t>(bytes), Tag::workspace, nullptr);
}

void LockedPool::unlock(std::multimap<size_t, Free>::iterator it) {
  source_.unlock(it->second.data, it->first);
  locked_ -= static_cast<int64_t>(it->first);
  free_bytes_ -= static_cast<int64_t>(it->first);
  free_.erase(it);
}

void LockedPool::unlock_idle() {
  const double now = source_.now(), before = now - patience_;
  for (auto it = free_.begin(); it != free_.end();) {
    const auto next = std::next(it);
    if (it->second.since < before) {
      idle_since_[it->first] = it->second.since;
      unlock(it);
    }
    it = next;
  }
  std::erase_if(idle_since_, [&](const auto& known) { return now - known.second > kLongestIdle; });
  unlock_slabs(before);
}

void LockedPool::unlock_slabs(double before) {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    if (it->blocks > 0 || it->since >= before) {
      ++it;
      continue;
    }
    source_.unlock(it->data, kSlab);
    locked_ -= static_cast<int64_t>(kSlab);
    it = slabs_.erase(it);
  }
}

}  // namespace strata::memory
