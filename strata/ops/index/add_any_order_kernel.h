#pragma once
#include "strata/cuda/rows.h"

namespace strata {

/// Whether there is a kernel for the dtype.
inline bool adds_floats_or_words(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16 || t == DType::i32 || t == DType::i64;
}
/// Whether rows of this dtype and shape are better added in any order than after sorting the index.
bool adds_any_order(DType t, const cuda::RowShape& shape, int64_t n);
/// y = x [pre, rows, width] (zeros where x is null) plus alpha * source [pre, n, width] at the rows that index (i64,
/// dense, n elements) names. All dense; y may be x. The same bits in every call: sums are formed in integers. A row out
/// of range is told of and left out; with from_end negative ones count from the end.
void add_any_order_cuda(DType t, void* y, const void* x, const cuda::RowShape& shape, const Tensor& index,
                        const void* source, Scalar alpha, bool from_end);

}  // namespace strata
