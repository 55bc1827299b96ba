#pragma once
// Reading and writing elements by index tensors (i64 or i32) and masks (bool). strata/ops/index/indexing.h has x[...].
// Indices count from 0; one outside its dimension is an IndexError that names op, index, dimension and size.
// A kernel on a CUDA device cannot throw: there such an index is printed and ends all work on the device, and every
// later call that waits for it throws DeviceError.

#include <optional>

#include "strata/core/tensor.h"
#include "strata/ops/index/indexing.h"

namespace strata {

/// @name Along one dimension, an index for each element
/// @{
/// result[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on; the result has the shape of `index`, which may be
/// shorter than x in the other dimensions. Throws ShapeError.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// x with x[index[i][j][k]][j][k] replaced by src[i][j][k] for dim 0, and so on. Where an index comes twice, the later
/// element wins. `src` may be larger than `index`.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value);
/// The same, adding. Elements with one target are added in order, so the sum does not depend on threads.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
/// gather with `index` and x broadcast against each other in the other dimensions; without dim on the flattened x.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});
/// @}

/// @name Along one dimension, an index for each slice
/// @{
/// The slices of x along `dim` that the 1-D (or 0-dim) `index` names.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// x with alpha * (slice i of source) added to its slice index[i].
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);
/// The same written over x, which it returns.
Tensor& index_add_(Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);
/// @}

/// @name Masks
/// @{
/// x with `value` where the bool `mask`, broadcast, is true.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// With the only element of a 0-dim `value`, converted to x's dtype; its gradient is the sum where it stands. Throws
/// ShapeError.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
Tensor& masked_fill_(Tensor& x, const Tensor& mask, Scalar value);
/// The elements of x where the mask is true, 1-D, in row-major order; x and mask broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// x with the elements where the mask is true replaced by those of `source`, in order. Throws ShapeError when source
/// has too few.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// Positions of the elements that are not 0: [count, x.dim()] i64, in row-major order.
Tensor nonzero(const Tensor& x);
/// @}

/// @name Classes and counts
/// @{
/// [..., num_classes] i64 with a 1 at the place that each element names. Without num_classes: the largest plus one.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);
/// How often each of 0, 1, ... occurs in the 1-D, non-negative `x` (i64), or the sum of the weights there.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0);
/// @}

}  // namespace strata
