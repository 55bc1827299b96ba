#pragma once
// Windows of images as columns, and back: what makes a convolution a matrix product.

#include "strata/core/tensor.h"

namespace strata {

/// Windows of x [n, c, h, w] (or [c, h, w]) as columns [n, c kh kw, windows]; what lies outside is 0. There are (h + 2
/// padding - dilation (kernel - 1) - 1) / stride + 1 windows along a dimension, rounded down. A list with one entry
/// serves both dimensions. Throws ShapeError, ValueError.
Tensor im2col(const Tensor& x, const Dims& kernel, const Dims& dilation = {1}, const Dims& padding = {0},
              const Dims& stride = {1});
/// Columns [n, c kh kw, windows] (or [c kh kw, windows]) added up where im2col() of an image of `output_size` took them
/// from: [n, c, h, w]. The transpose of im2col(). Throws ShapeError, ValueError, DTypeError for bool.
Tensor col2im(const Tensor& columns, const Dims& output_size, const Dims& kernel, const Dims& dilation = {1},
              const Dims& padding = {0}, const Dims& stride = {1});

}  // namespace strata
