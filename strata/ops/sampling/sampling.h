#pragma once
// Inputs sampled at positions between their elements, and the positions of affine maps.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// x [n, c, h, w] at the positions `grid` [n, h', w', 2], (column, row) from -1 to 1 (or x [n, c, d, h, w] at [n, d',
/// h', w', 3]): [n, c, h', w']. Modes "bilinear" (in three dimensions trilinear), "nearest" and, in two dimensions,
/// "bicubic"; outside are "zeros", the "border" or a "reflection" at it. With align_corners -1 and 1 are the middles of
/// the corner elements, else the corners of the image (Jaderberg et al., arXiv:1506.02025). What is no number is
/// outside. Throws ShapeError, DTypeError, ValueError.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const std::string& mode = "bilinear",
                   const std::string& padding_mode = "zeros", bool align_corners = false);
/// Positions for grid_sample(): theta [n, 2, 3] (or [n, 3, 4]) maps a result of `size` [n, c, h, w] ([n, c, d, h, w])
/// into the input, both from -1 to 1. Throws ShapeError.
Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners = false);

/// What reaches x [.., sizes of the positions] -> [.., `size`], and what reaches the positions.
Tensor grid_sample_backward_input(const Tensor& g, const Tensor& grid, const Dims& size, const std::string& mode,
                                  const std::string& padding_mode, bool align_corners);
Tensor grid_sample_backward_grid(const Tensor& g, const Tensor& x, const Tensor& grid, const std::string& mode,
                                 const std::string& padding_mode, bool align_corners);

}  // namespace strata
