#pragma once
// Which rows of a table are kept: the books, without the bytes.

#include <cstdint>
#include <span>
#include <vector>

namespace strata::nn {

/// Slots for rows of a table. What is kept follows from the calls alone.
class RowCache {
 public:
  /// What a batch finds, and what it changes.
  struct Plan {
    std::vector<int64_t> missing;  ///< rows that are not kept, each once, in the order in which they are first named
    std::vector<int64_t> slots;    ///< where each of them goes; kNone: nowhere
    std::vector<int64_t> local;    ///< of each position: the row's place in `missing`, or behind them among `found`
    std::vector<int64_t> found;    ///< slots of rows that are kept, each once
    int64_t hits = 0;              ///< positions whose row is kept
  };
  static constexpr int64_t kNone = INT64_MIN;

  RowCache(int64_t rows, int64_t slots);

  /// The slot of a row; -1 where it is not kept.
  int32_t slot(int64_t row) const { return slot_of_[static_cast<size_t>(row)]; }
  std::span<const int32_t> slots() const { return slot_of_; }
  int64_t size() const { return static_cast<int64_t>(all_.size()); }

  /// A batch asks for `rows`, all in range. With `admit`, what is missing takes the place of what was not asked for
  /// since the hand passed it last (a clock: second chance), never of what this batch asks for; where there is no such
  /// slot it is not kept.
  Plan ask(std::span<const int64_t> rows, bool admit);
  /// Keeps these rows, row rows[i] in slot i, and no other.
  void assign(std::span<const int64_t> rows);
  /// Keeps nothing.
  void clear();

 private:
  // What is known of a slot, in one place: rows are asked for in no order, so that each is a miss of the processor's
  // caches.
  struct Slot {
    int64_t row = -1;    // that it holds; -1: none
    int64_t batch = 0;   // the last one that asked for it
    int32_t place = 0;   // in that batch's `found`
    bool asked = false;  // since the hand passed
  };
  int64_t take_slot();

  std::vector<int32_t> slot_of_;  // of each row
  std::vector<Slot> all_;
  int64_t hand_ = 0, batch_ = 0;
};

}  // namespace strata::nn
