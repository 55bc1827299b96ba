#include "strata/memory/ledger.h"

#include <algorithm>
#include <iterator>

#include "strata/core/error.h"
#include "strata/memory/report.h"
#include "strata/memory/timeline.h"
#include "strata/memory/timeline_hooks.h"

namespace strata::memory {

void Accounts::take(int64_t bytes, Tag tag) {
  s.live[static_cast<int>(tag)] += bytes;
  s.live_total += bytes;
  ++s.blocks;
  ++s.allocations;
  if (s.live_total > s.peak_total) {
    s.peak_total = s.live_total;
    std::copy(std::begin(s.live), std::end(s.live), std::begin(s.peak));
  }
}
void Accounts::give(int64_t bytes, Tag tag) {
  s.live[static_cast<int>(tag)] -= bytes;
  s.live_total -= bytes;
  --s.blocks;
}
void Accounts::retag(int64_t bytes, Tag from, Tag to) {
  s.live[static_cast<int>(from)] -= bytes;
  s.live[static_cast<int>(to)] += bytes;
}
void Accounts::reserve(int64_t bytes) {
  s.reserved = bytes;
  s.peak_reserved = std::max(s.peak_reserved, bytes);
}
void Accounts::reset_peak() {
  s.peak_total = s.live_total;
  std::copy(std::begin(s.live), std::end(s.live), std::begin(s.peak));
  s.peak_reserved = s.reserved;
}

void Ledger::check_room(int64_t bytes, Tag tag, bool refused) {
  const std::lock_guard lock(mutex_);
  const int64_t most = limit();
  if (refused || (most != 0 && accounts_.s.live_total + bytes > most))
    refuse(accounts_.s, list(), bytes, most != 0 ? most : accounts_.s.live_total, tag, backend_.name);
}

void Ledger::take(Device device, const void* block, int64_t bytes, Tag tag) {
  const std::string* who = holder();
  {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(block, Block{bytes, tag, who});
    accounts_.take(bytes, tag);
  }
  if (is_recording()) record_taken(device, backend_.tier, block, static_cast<size_t>(bytes), tag, who);
}

void Ledger::give(Device device, const void* block) {
  if (is_recording()) record_given(device, backend_.tier, block);
  const std::lock_guard lock(mutex_);
  const auto at = blocks_.find(block);
  check(at != blocks_.end(), "deallocate", "the block is not one of the ", backend_.name, " memory");
  accounts_.give(at->second.bytes, at->second.tag);
  blocks_.erase(at);
}

void Ledger::retag(Device device, const void* block, Tag to) {
  if (is_recording()) record_retagged(device, backend_.tier, block, to);
  const std::lock_guard lock(mutex_);
  Block& b = blocks_.at(block);
  accounts_.retag(b.bytes, b.tag, to);
  b.tag = to;
}

void Ledger::reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  accounts_.reserve(bytes);
}

Stats Ledger::stats() const {
  const std::lock_guard lock(mutex_);
  return accounts_.s;
}
void Ledger::reset_peak() {
  const std::lock_guard lock(mutex_);
  accounts_.reset_peak();
}
std::vector<BlockInfo> Ledger::list() const {
  std::vector<BlockInfo> all;
  for (const auto& [block, b] : blocks_)
    all.push_back({reinterpret_cast<uintptr_t>(block), b.bytes, b.tag, b.holder ? *b.holder : std::string()});
  return all;
}
std::vector<BlockInfo> Ledger::blocks() const {
  const std::lock_guard lock(mutex_);
  return list();
}
int64_t Ledger::set_limit(int64_t bytes) {
  check(bytes >= 0, "set_limit", "needs a number of bytes, or 0 for no limit of its own; got ", bytes);
  return limit_.exchange(bytes);
}

}  // namespace strata::memory
