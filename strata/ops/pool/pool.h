#pragma once
// Pooling and resizing over the last one to three dimensions of [n, c, length], [n, c, h, w] or [n, c, d, h, w]; a
// missing batch dimension is allowed. Names, defaults and size formulas are PyTorch's. A list with one entry serves all
// dimensions.

#include <optional>
#include <string>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Largest element of each window. An empty `stride` means the kernel's size. Output length: (length + 2 padding -
/// dilation (kernel - 1) - 1) / stride + 1, rounded down (up with `ceil_mode`); padding, at most half the kernel, never
/// wins. NaN wins. Throws ShapeError, ValueError.
Tensor max_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  const Dims& dilation = {1}, bool ceil_mode = false);
Tensor max_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  const Dims& dilation = {1}, bool ceil_mode = false);
Tensor max_pool3d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  const Dims& dilation = {1}, bool ceil_mode = false);
/// Mean of each window; padding counts as zeros unless count_include_pad is false. With divisor_override its sum over
/// that. Integers are divided towards 0.
Tensor avg_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel, const Dims& stride = {}, const Dims& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});
/// Pooling to a given output size: output i covers inputs floor(i in / out) to ceil((i + 1) in / out) - 1.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size);
/// Resizes to `size`, or by `scale_factor` (exactly one of them). Modes: "nearest", "linear" (one spatial dimension),
/// "bilinear" (two), "trilinear" (three). With align_corners the corner elements map to each other, else the corners of
/// the image.
Tensor interpolate(const Tensor& x, const std::optional<Dims>& size = std::nullopt,
                   std::optional<double> scale_factor = std::nullopt, const std::string& mode = "nearest",
                   bool align_corners = false);

/// [.., C r^2, H, W] to [.., C, H r, W r] (Shi et al., arXiv:1609.05158), and back. Throws ShapeError.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);
/// Channels of x [N, C, ..] dealt out in turn: those of `groups` groups are interleaved (Zhang et al.,
/// arXiv:1707.01083).
Tensor channel_shuffle(const Tensor& x, int64_t groups);

/// What the above are made of; the spatial dimensions are the last kernel.size() ones, all before them are planes.
/// Largest elements and their positions in the plane (-1 where a window has none).
std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                                    const Dims& dilation, bool ceil_mode);
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& x, const Dims& output_size);
/// Adds g's elements to the inputs of spatial size `size` that won their windows; the gradient of max_pool.
Tensor max_pool_backward(const Tensor& g, const Tensor& positions, const Dims& size, const Dims& kernel,
                         const Dims& stride, const Dims& padding, const Dims& dilation);
/// Adds y's elements into zeros of spatial size `size`, each at its position in the plane; the gradient of
/// adaptive_max_pool.
Tensor plane_scatter(const Tensor& y, const Tensor& positions, const Dims& size);
/// x [.., n]'s elements at `positions` [.., m] of each plane, planes flattened; the gradient of plane_scatter.
Tensor plane_gather(const Tensor& x, const Tensor& positions);
Tensor avg_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                bool count_include_pad);
Tensor avg_pool_backward(const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding,
                         bool ceil_mode, bool count_include_pad);
Tensor adaptive_avg_pool(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool_backward(const Tensor& g, const Dims& size);
/// Linear in each spatial dimension ("linear") or nearest; input position = scale * output position, scale 0 meaning
/// that it follows from the sizes.
Tensor resize(const Tensor& x, const Dims& size, const std::string& mode, bool align_corners, double scale);
Tensor resize_backward(const Tensor& g, const Dims& size, const std::string& mode, bool align_corners, double scale);

}  // namespace strata
