#include <algorithm>

#include "strata/nn/row_cache_inl.h"

namespace strata::nn {

RowCache::RowCache(int64_t rows, int64_t slots)
    : slot_of_(static_cast<size_t>(rows), -1),
      row_in_(static_cast<size_t>(slots), -1),
      asked_(static_cast<size_t>(slots), 0),
      batch_of_(static_cast<size_t>(slots), 0),
      place_of_(static_cast<size_t>(slots), 0) {}

RowCache::Plan RowCache::ask(std::span<const int64_t> rows, bool admit) {
  Plan plan;
  plan.local.resize(rows.size());
  ++batch_;
  // Hits are marked before anything is replaced. Of a missing row the table of slots says meanwhile which it is, as -2,
  // -3, ...; of a position that is a hit `local` says it the same way until the number of missing ones is known.
  for (size_t i = 0; i < rows.size(); ++i) {
    int32_t& s = slot_of_[static_cast<size_t>(rows[i])];
    if (s >= 0) {
      const auto at = static_cast<size_t>(s);
      ++plan.hits;
      asked_[at] = 1;
      if (batch_of_[at] != batch_) {
        batch_of_[at] = batch_;
        place_of_[at] = static_cast<int32_t>(plan.found.size());
        plan.found.push_back(s);
      }
      plan.local[i] = -1 - place_of_[at];
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
    int32_t& s = slot_of_[static_cast<size_t>(plan.missing[m])];
    s = -1;
    if (!admit) continue;
    const int64_t slot = take_slot();
    admit = slot >= 0;
    if (!admit) continue;
    if (row_in_[static_cast<size_t>(slot)] >= 0) slot_of_[static_cast<size_t>(row_in_[static_cast<size_t>(slot)])] = -1;
    row_in_[static_cast<size_t>(slot)] = plan.missing[m];
    batch_of_[static_cast<size_t>(slot)] = batch_;
    s = static_cast<int32_t>(slot);
    plan.slots[m] = slot;
  }
  return plan;
}

// The next slot that may be replaced; -1 where this batch asked for all of them.
int64_t RowCache::take_slot() {
  for (int64_t passed = 0; passed < 2 * size(); ++passed) {
    const auto at = static_cast<size_t>(hand_);
    hand_ = (hand_ + 1) % size();
    if (batch_of_[at] == batch_) continue;
    if (!asked_[at]) return static_cast<int64_t>(at);
    asked_[at] = 0;
  }
  return -1;
}

void RowCache::assign(std::span<const int64_t> rows) {
  clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    row_in_[i] = rows[i];
    slot_of_[static_cast<size_t>(rows[i])] = static_cast<int32_t>(i);
  }
}

void RowCache::clear() {
  std::fill(slot_of_.begin(), slot_of_.end(), -1);
  std::fill(row_in_.begin(), row_in_.end(), -1);
  std::fill(asked_.begin(), asked_.end(), uint8_t{0});
}

}  // namespace strata::nn
