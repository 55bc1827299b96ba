#pragma once
// Windows of volumes, slice by slice and all at once: what three-dimensional convolutions are put together from.

#include "strata/core/tensor.h"

namespace strata {

/// x [n, c, d, h, w] as slices [n D, c kd, h, w]: slice i has the kd slices of x behind output i along the depth.
Tensor depth_windows(const Tensor& x, int64_t kd, int64_t padding, int64_t stride, int64_t dilation);
/// The transpose: slices [n D, c kd, h, w] added up to [n, c, depth, h, w].
Tensor add_depth_windows(const Tensor& slices, int64_t n, int64_t depth, int64_t kd, int64_t padding, int64_t stride,
                         int64_t dilation);

/// Windows [n, c kd kh kw, D H W] of D H W places added up where a convolution of a volume of `size` with that geometry
/// (three entries each) takes them from, and bias [c], where there is one: [n, c, size]. ShapeError.
Tensor fold_volume(const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel, const Dims& stride,
                   const Dims& padding, const Dims& dilation);

/// y [n, c, size] in one launch; `windows` row-major, y too and of fewer than 2^31 elements.
void fold_volume_cuda(Tensor& y, const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel,
                      const Dims& stride, const Dims& padding, const Dims& dilation);

}  // namespace strata
