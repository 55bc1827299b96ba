#pragma once
// Random numbers belong to a batch's rows, not to who computes them.

#include <cstdint>

namespace strata {

/// Some consecutive rows of a batch whose other rows are computed elsewhere, or at another time.
struct RowShare {
  int64_t first = 0;  ///< the first of them
  int64_t own = 1;    ///< how many
  int64_t all = 1;    ///< of the whole batch
  friend bool operator==(const RowShare&, const RowShare&) = default;
};

/// While one lives, calls that draw from default_generator() are parts of calls over all rows: what has rows as its
/// first dimension, and a number for each element, gets the numbers that its elements would get there (so each mask of
/// dropout is a part of the batch's mask), and the generator moves on by what all rows take. That holds to the last
/// number where the rows before this part have a multiple of four elements; else it begins at the next block of four.
/// In all threads of the process.
/// Throws ValueError unless 0 <= first, 0 < own and first + own <= all.
///
///     RowShareScope rows({.first = 4, .own = 4, .all = 8});
///     Tensor y = dropout(x, 0.1, /*training=*/true);  // x [4, ..]: as rows 4 to 7 of a dropout of [8, ..]
class RowShareScope {
 public:
  explicit RowShareScope(const RowShare& share);
  ~RowShareScope();
  RowShareScope(const RowShareScope&) = delete;

 private:
  RowShare outer_;
};

/// The innermost scope's; {0, 1, 1} without one.
RowShare row_share();

}  // namespace strata
