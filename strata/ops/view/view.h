#pragma once
// Views: other geometries over the same storage. Nothing is copied; gradients flow through.

#include "strata/core/tensor.h"

namespace strata {

/// `x`'s elements in row-major order under `shape` (one size may be -1). Throws ShapeError when the element count
/// differs or the strides do not allow a view; reshape() copies instead of the latter.
Tensor view(const Tensor& x, const Shape& shape);
/// view() where possible, else a contiguous copy.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dimensions `start` to `end` (inclusive) as one.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
/// Dimension `dim` split into `sizes`; one of them may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);
/// Dimensions `a` and `b` exchanged.
Tensor transpose(const Tensor& x, int64_t a, int64_t b);
/// Dimension i of the result is dimension dims[i] of `x`. Throws ValueError unless dims is a permutation.
Tensor permute(const Tensor& x, const Dims& dims);
/// Dimensions of size 1 (and new leading ones) repeated to `shape`, with stride 0; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
/// Elements start, start + step, ... before `end` of dimension `dim`; negative positions count from the end and are
/// clamped, as in PyTorch. Throws ValueError unless step >= 1.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
/// slice() by length. Throws IndexError when start + length does not fit.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// The `index`-th sub-tensor along `dim`, which disappears. Throws IndexError.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// Without dimensions of size 1: all of them, or `dim` only (unchanged when its size is not 1).
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
/// With a new dimension of size 1 at `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// The diagonal of dimensions dim1 and dim2 as the last dimension; `offset` > 0 lies above the main one.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Windows of `size` elements, `step` apart, along `dim`; the window becomes the last dimension.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
/// Any geometry over the storage. Throws ShapeError when it reaches outside it.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset);

/// `g` summed over the dimensions in which `shape` was broadcast: the gradient of expand.
Tensor sum_to(const Tensor& g, const Shape& shape);

/// `g` placed into zeros of `shape` where the view took its elements from; overlapping windows add up.
/// These are the gradients of slice, select, diagonal, unfold and as_strided.
Tensor slice_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t start, int64_t end, int64_t step);
Tensor select_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t index);
Tensor diagonal_backward(const Tensor& g, const Shape& shape, int64_t offset, int64_t dim1, int64_t dim2);
Tensor unfold_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t size, int64_t step);
Tensor as_strided_backward(const Tensor& g, const Shape& base_shape, const Strides& base_strides, int64_t base_offset,
                           const Shape& shape, const Strides& strides, int64_t offset);

}  // namespace strata
