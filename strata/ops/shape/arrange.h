#pragma once
// Tensors side by side, in parts, turned, and as grids. Included by strata/ops/shape/shape.h.

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// @name Side by side
/// @{
/// With at least one, two or three dimensions: new ones in front, but of atleast_3d the third behind a matrix and the
/// outer two around a vector.
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);
/// cat() along the second dimension (of vectors and numbers, the first), along the first of matrices, along the third;
/// numbers and vectors count as rows (hstack: as they are; dstack: as atleast_3d makes them). Throws ShapeError.
Tensor hstack(const TensorList& tensors);
Tensor vstack(const TensorList& tensors);
Tensor dstack(const TensorList& tensors);
/// Vectors as columns, matrices side by side.
Tensor column_stack(const TensorList& tensors);
/// A matrix with the given ones along its diagonal and zeros elsewhere; vectors and numbers count as rows.
Tensor block_diag(const TensorList& tensors);
/// @}

/// @name Parts, turns and grids
/// @{
/// `sections` parts along `dim` as views, as equal as can be, the longer ones first. Throws ValueError.
TensorList tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
/// Parts that begin at the 1-D integer `indices` (negative ones count from the end; the first part begins at 0).
TensorList tensor_split(const Tensor& x, const Tensor& indices, int64_t dim = 0);
/// Turned k times by 90 degrees from the first of two `dims` to the second. Throws ValueError, ShapeError.
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});
/// The columns, or the rows, in reverse.
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);
/// The sum of a matrix's diagonal. Throws ShapeError unless x is a matrix.
Tensor trace(const Tensor& x);
/// A matrix with the elements of x in row-major order on its `offset`-th diagonal.
Tensor diagflat(const Tensor& x, int64_t offset = 0);
/// Powers n - 1, ..., 0 (`increasing`: 0, ..., n - 1) of each element of a vector, a row each; n defaults to the
/// vector's length.
Tensor vander(const Tensor& x, std::optional<int64_t> n = {}, bool increasing = false);
/// Every choice of one element from each vector, a row each; of one vector itself.
Tensor cartesian_prod(const TensorList& tensors);
/// Every choice of r elements of a vector (with replacement: also the same again), a row each, in order of the places.
Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false);
/// @}

}  // namespace strata
