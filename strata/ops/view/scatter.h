#pragma once
// Copies of a tensor in which a view shows other elements: `src` has the view's shape and x's dtype. Throw ShapeError,
// DTypeError, IndexError.

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// A copy of x with `src` in the place of slice(x, dim, start, end, step); without start or end, from the beginning or
/// to the end.
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim = 0, std::optional<int64_t> start = {},
                     std::optional<int64_t> end = {}, int64_t step = 1);
/// A copy of x with `src` in the place of select(x, dim, index).
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index);
/// A copy of x with `src` in the place of diagonal(x, offset, dim1, dim2).
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// A row-major copy of x with `src` in the place of as_strided(copy, shape, strides, offset).
Tensor as_strided_scatter(const Tensor& x, const Tensor& src, const Shape& shape, const Strides& strides,
                          int64_t offset = 0);

}  // namespace strata
