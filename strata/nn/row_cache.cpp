#include <algorithm>

#include "strata/nn/row_cache_inl.h"

namespace strata::nn {

RowCache::RowCache(int64_t rows, int64_t slots)
    : slot_of_(static_cast<size_t>(rows), -1), all_(static_cast<size_t>(slots)) {}

RowCache::Plan RowCache::ask(std::span<const int64_t> rows, bool admit) {
  constexpr size_t kAhead = 16;  // rows whose slots are on their way to the processor
  Plan plan;
  plan.local.resize(rows.size());
  ++batch_;
  // Hits are marked before anything is replaced. Of a missing row the table of slots says meanwhile which it is, as -2,
  // -3, ...; of a position that is a hit `local` says it the same way until the number of missing ones is known.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(&slot_of_[static_cast<size_t>(rows[i + kAhead])], 1);
    int32_t& s = slot_of_[static_cast<size_t>(rows[i])];
    if (s >= 0) {
      Slot& slot = all_[static_cast<size_t>(s)];
      ++plan.hits;
      slot.asked = true;
      if (slot.batch != batch_) {
        slot.batch = batch_;
        slot.place = static_cast<int32_t>(plan.found.size());
        plan.found.push_back(s);
      }
      plan.local[i] = -1 - slot.place;
      continue;
    }
    if (s == -1) {
      s = -2 - static_cast<int32_t>(plan.missing.size());
      plan.missing.push_back(rows[i]);
    }
    plan.local[i] = -2 - s;
  }
  const auto missing = static_cast<int64_t>(plan.missing.size());
  for (int64_t& at : plan.local)
    if (at < 0) at = missing - 1 - at;
  plan.slots.assign(plan.missing.size(), kNone);
  for (size_t m = 0; m < plan.missing.size(); ++m) {
    if (m + kAhead < plan.missing.size())
      __builtin_prefetch(&slot_of_[static_cast<size_t>(plan.missing[m + kAhead])], 1);
    int32_t& s = slot_of_[static_cast<size_t>(plan.missing[m])];
    s = -1;
    if (!admit) continue;
    const int64_t at = take_slot();
    admit = at >= 0;
    if (!admit) continue;
    Slot& slot = all_[static_cast<size_t>(at)];
    if (slot.row >= 0) slot_of_[static_cast<size_t>(slot.row)] = -1;
    slot.row = plan.missing[m];
    slot.batch = batch_;
    s = static_cast<int32_t>(at);
    plan.slots[m] = at;
  }
  return plan;
}

// The next slot that may be replaced; -1 where this batch asked for all of them.
int64_t RowCache::take_slot() {
  for (int64_t passed = 0; passed < 2 * size(); ++passed) {
    const int64_t at = hand_;
    hand_ = hand_ + 1 == size() ? 0 : hand_ + 1;
    Slot& slot = all_[static_cast<size_t>(at)];
    if (slot.batch == batch_) continue;
    if (!slot.asked) return at;
    slot.asked = false;
  }
  return -1;
}

void RowCache::assign(std::span<const int64_t> rows) {
  clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    all_[i].row = rows[i];
    slot_of_[static_cast<size_t>(rows[i])] = static_cast<int32_t>(i);
  }
}

void RowCache::clear() {
  std::fill(slot_of_.begin(), slot_of_.end(), -1);
  for (Slot& slot : all_) {
    slot.row = -1;
    slot.asked = false;
  }
}

}  // namespace strata::nn
