#pragma once
// The convolution of volumes and its transpose, which conv3d and conv_transpose3d are after their checks. Lists have
// three entries, sizes must fit each other as those two check.

#include "strata/core/tensor.h"
#include "strata/ops/conv/conv_geometry.h"

namespace strata {

/// y [n, out, ..] of x [n, in, d, h, w] and weight [out, in / groups, kd, kh, kw], bias [out] or undefined; row-major.
/// Throws ShapeError, DTypeError.
Tensor volume_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Geometry& g);
/// Its gradient for x [n, in, size] from y, plus bias [in].
Tensor volume_transpose(const Tensor& y, const Tensor& weight, const Tensor& bias, const Dims& size, const Geometry& g);

}  // namespace strata
