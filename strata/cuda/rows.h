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
  Tensor keys, order;  ///< the index, and where it stood: i32, or i64 where rows or positions are more than 2^31 - 1
};
/// Sorts an index (i64, dense) of rows in [0, rows), with from_end negative ones counted from the end. Those that are
/// out of range, of which the host hears, and kNoRow are `rows` in the result, which is no row.
SortedIndex sort_index(const Tensor& index, int64_t rows, bool from_end = false);
/// Sorts keys (i64, dense) as unsigned numbers of `bits` bits; the result is of i64.
SortedIndex sort_keys(const Tensor& keys, int bits);

struct SumOptions {
  int64_t skip = -1;       ///< a row that is left alone
  bool from_zero = false;  ///< y holds zeros, which then are not read
};
/// y += alpha * source [pre, n, width] at the named rows, rounded once. Sums of many rows are taken in parts, which the
/// index alone determines: the order of additions is the same in every call.
void add_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source, Scalar alpha,
              const SumOptions& how = {});
/// y += alpha * source (f32) at the places that an index (i64, dense) of as many elements names, with from_end negative
/// ones counted from the end: the sums of add_rows(), of values that are sorted with their places. Places and elements
/// are fewer than 2^31; a place out of range is told of and left out.
void add_values(float* y, int64_t places, const Tensor& index, const float* source, float alpha, bool from_end = false);
/// y += scale[s] * source row index.order[s] for each key s, of one matrix (shape.pre is 1) and a floating dtype: here
/// `order` says which row of source belongs to a key, and any number of keys may share one. scale is f32, f64 for f64,
/// and in the order of the keys.
void add_scaled_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source,
                     const Tensor& scale, const SumOptions& how = {});
/// y = source at the named rows; of several that name one row the last counts.
void put_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source);

}  // namespace strata::cuda
