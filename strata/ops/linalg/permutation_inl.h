#pragma once
// Where a row comes from, by the exchanges of an elimination. On the CPU and in CUDA kernels.

#include <cstdint>

#ifdef __CUDACC__
#define STRATA_ROWS __host__ __device__ __forceinline__
#else
#define STRATA_ROWS inline
#endif

namespace strata::linalg {

/// Which of `rows` rows stands in place `row` after k exchanges, the i-th of row i and row pivots[i] (from 1): they are
/// undone from the last on, each row for itself.
STRATA_ROWS int64_t row_before(const int* pivots, int64_t k, int64_t rows, int64_t row) {
  for (int64_t i = k - 1; i >= 0; --i) {
    int64_t other = static_cast<int64_t>(pivots[i]) - 1;
    other = other < 0 ? 0 : other >= rows ? rows - 1 : other;
    row = row == i ? other : row == other ? i : row;
  }
  return row;
}

}  // namespace strata::linalg

#undef STRATA_ROWS
