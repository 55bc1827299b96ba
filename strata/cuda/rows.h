#pragma once
// Rows read and written by index on a CUDA device: what embeddings and the indexing records share. A matrix here is
// [pre, rows, width], row-major; row i of an index's n stands for row index[i] of each of the `pre` blocks. Of an index
// outside [0, rows) the host hears later (range.cuh); it reads zeros and writes nothing.

#include "strata/core/tensor.h"

namespace strata::cuda {

/// In an index: an element that is out of range and was told of already.
inline constexpr int64_t kNoRow = INT64_MIN;

struct RowShape {
  int64_t pre = 1, rows = 0, width = 1;
};

/// y [pre, n, width] = the rows of x that index (i64, dense, n elements) names. Both hold elements of dtype t. With
/// from_end negative ones count from the end.
void take_rows(DType t, const void* x, const RowShape& shape, const Tensor& index, void* y, bool from_end = false);

/// An index in ascending order, equal ones in the order of their positions.
struct SortedIndex {
  Tensor keys, order;  ///< i64: the index, and where it stood
};
/// Sorts an index (i64, dense) of values in [0, limit); with kAnyValue of any, negative ones last.
inline constexpr int64_t kAnyValue = INT64_MIN;
SortedIndex sort_index(const Tensor& index, int64_t limit);

/// y += alpha * source [pre, n, width] at the named rows, rounded once. Sums of many rows are taken in parts, which the
/// index alone determines: the order of additions is the same in every call. Row `skip` is left alone.
void add_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source, Scalar alpha,
              int64_t skip = -1);
/// y += scale[s] * source row index.order[s] for each key s, of one matrix (shape.pre is 1) and a floating dtype: here
/// `order` says which row of source belongs to a key, and any number of keys may share one. scale is f32, f64 for f64,
/// and in the order of the keys.
void add_scaled_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source,
                     const Tensor& scale, int64_t skip = -1);
/// y = source at the named rows; of several that name one row the last counts.
void put_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source);

}  // namespace strata::cuda
