#pragma once
// What ranges.cpp and its CUDA kernels share.

#include <algorithm>
#include <cstdint>

#include "strata/core/tensor.h"

namespace strata {

/// The numbers of a range: element i is first + i * step, computed in int64 where `integral` (it wraps) and else in
/// double, where elements from `turn` on are counted from the other end: last - (size - 1 - i) * step. With `power`,
/// base to that.
struct RangeNumbers {
  bool integral = false, power = false;
  uint64_t first_int = 0, step_int = 0;
  double first = 0, step = 0, last = 0, base = 0;
  int64_t size = 0, turn = INT64_MAX;
};
/// y[i] = from + (i - zero) * step for begin <= i < end, computed in double; y is f32 or f64.
void evenly_spaced_cpu(DType t, void* y, int64_t begin, int64_t end, double from, double step, int64_t zero);
/// Fills y, of any dtype and strides, on its CUDA device.
void range_cuda(Tensor& y, const RangeNumbers& r);

/// A triangle's part of a matrix: row i holds the columns before (lower) or from (upper) edge(i).
struct Triangle {
  bool lower;
  int64_t rows, cols, shift;  ///< edge(i) = i + shift, within [0, cols]

  constexpr Triangle(bool is_lower, int64_t r, int64_t c, int64_t offset)
      : lower(is_lower), rows(r), cols(c), shift(std::clamp<int64_t>(offset, -r, c) + (is_lower ? 1 : 0)) {}
  constexpr int64_t edge(int64_t i) const { return std::clamp<int64_t>(i + shift, 0, cols); }
  /// The rows that hold any element.
  constexpr int64_t first_row() const { return lower ? std::clamp<int64_t>(-shift, 0, rows) : 0; }
  constexpr int64_t last_row() const { return lower ? rows : std::clamp<int64_t>(cols - shift, 0, rows); }
  /// The number of elements in the rows before `end`.
  constexpr __int128 before(int64_t end) const {
    const __int128 ramp = std::clamp<int64_t>(-shift, 0, end), full = std::clamp<int64_t>(cols - shift, 0, end);
    const __int128 below = (full - ramp) * (ramp + full - 1 + 2 * static_cast<__int128>(shift)) / 2 +
                           (end - full) * static_cast<__int128>(cols);
    return lower ? below : static_cast<__int128>(end) * cols - below;
  }
  constexpr __int128 count() const { return before(rows); }
};
/// Fills y [2, count()] i64 with the rows and columns of the triangle's elements, in row-major order.
void triangle_indices_cuda(Tensor& y, const Triangle& t);

}  // namespace strata
