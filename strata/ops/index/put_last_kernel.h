#pragma once
#include "strata/cuda/rows.h"

namespace strata {

/// y [pre, rows, width] = source [pre, n, width] at the rows that index (i64, dense, n elements) names; of several that
/// name one row the last counts. Elements of dtype t, both dense. A row out of range is told of and left out.
void put_last_cuda(DType t, void* y, const cuda::RowShape& shape, const Tensor& index, const void* source);

}  // namespace strata
