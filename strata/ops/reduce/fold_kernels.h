#pragma once
// The inner loops of floating reductions, compiled for each processor level.

#include "strata/core/dtype.h"

namespace strata {

/// What is accumulated over a line of numbers.
enum class Fold : uint8_t {
  sum,
  sum_numbers,  // NaN left out
  sum_abs,
  sum_squares,  // of x - shift
  count_nonzero,
  prod,
  max,
  min,
  max_abs,
  min_abs,
};

/// Both accumulate in the type of the statistic, f32 or f64; NaN wins extremes.
struct FoldLoops {
  /// result[i] = what the n neighbours of line i give, each less shift[i] (0 where shift is null) where that matters.
  void (*lines)(const void* x, int64_t lines, int64_t n, const void* shift, void* result) = nullptr;
  /// result[j] takes up x[k * stride + j] for k < rows, each less shift[j] unless shift is null.
  void (*rows)(const void* x, int64_t rows, int64_t stride, int64_t width, const void* shift, void* result) = nullptr;
  /// The same for a width of at most `narrow`, 32 rows together before the next.
  void (*narrow_rows)(const void* x, int64_t rows, int64_t stride, int64_t width, const void* shift,
                      void* result) = nullptr;
  int64_t narrow = 0;
};
/// Those of a floating dtype.
FoldLoops fold_loops(Fold f, DType t);

/// Sums of products, accumulated as above.
struct DotLoops {
  /// result[i] = the sum of x[i * n + j] * z[i * n + j].
  void (*lines)(const void* x, const void* z, int64_t lines, int64_t n, void* result) = nullptr;
  /// result[j] += the sum of x[k * stride + j] * z[k * stride + j] over k < rows.
  void (*rows)(const void* x, const void* z, int64_t rows, int64_t stride, int64_t width, void* result) = nullptr;
};
DotLoops dot_loops(DType t);

/// Extremes with the first place of each, NaN before all numbers, of u8 to i64 and floats. `best` is of the type that
/// x's is computed in.
struct IndexLoops {
  /// Of the n > 0 neighbours of each line.
  void (*lines)(const void* x, int64_t lines, int64_t n, void* best, int64_t* place) = nullptr;
  /// Of x[k * stride + j] over 0 <= k < rows; rows < 2^31, width <= kIndexWidth.
  void (*columns)(const void* x, int64_t rows, int64_t stride, int64_t width, void* best, int32_t* place) = nullptr;
};
IndexLoops index_loops(DType t, bool largest);
inline constexpr int64_t kIndexWidth = 512;

}  // namespace strata
