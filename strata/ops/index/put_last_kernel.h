#pragma once
#include "strata/cuda/rows.h"

namespace strata {

/// Whether rows get numbers: these must be cheaper than a sort of the positions, and fit. from_end asks for it.
inline bool numbers_rows(int64_t rows, int64_t n) {
  return n <= INT32_MAX && rows <= 64 * n + (int64_t{1} << 20);
}
/// y = x [pre, rows, width], and then source [pre, n, width] at the rows that index (i64, dense, n elements) names; of
/// several that name one row the last counts. Elements of dtype t, all dense; y may be x. A row out of range is told of
/// and left out; with from_end negative ones count from the end.
void put_last_cuda(DType t, void* y, const void* x, const cuda::RowShape& shape, const Tensor& index,
                   const void* source, bool from_end);

/// Whether few of a 1-D y's elements are written, for which one block is enough; index (i64) is 1-D or one number.
bool puts_few(const Tensor& y, const Tensor& index);
/// y with source (1-D, of y's dtype) at the places that index names; of several sent to one place the last counts. Any
/// strides; source is not y's memory.
void put_few_cuda(Tensor& y, const Tensor& index, const Tensor& source, bool from_end);

}  // namespace strata
