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
/// Resizes to `size`, or by `scale_factor` (exactly one of them; the second and third spatial dimension may have one of
/// their own). Modes: "nearest" (by the output's start), "nearest-exact" (by its middle), "area" (means of what an
/// output covers), "linear" (one spatial dimension), "bilinear" and "bicubic" (two), "trilinear" (three). With
/// align_corners the corner elements map to each other, else the corners of the image. The step in the input is that of
/// the factor, or of the sizes with recompute_scale_factor. antialias widens the filter of "bilinear" and "bicubic" to
/// the step. Throws ShapeError, ValueError.
Tensor interpolate(const Tensor& x, const std::optional<Dims>& size = std::nullopt,
                   std::optional<double> scale_factor = std::nullopt, const std::string& mode = "nearest",
                   bool align_corners = false, bool recompute_scale_factor = false, bool antialias = false,
                   std::optional<double> second_scale_factor = {}, std::optional<double> third_scale_factor = {});

/// (sum of x^norm_type)^(1 / norm_type) of each window; one at the border (ceil_mode) counts as a whole one. Throws
/// ShapeError, ValueError for a norm_type of 0.
Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride = {},
                 bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride = {},
                 bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride = {},
                 bool ceil_mode = false);
/// Zeros with x's elements at `indices`, where max_pool found them in their planes; those with one place are added.
/// The size is (length - 1) stride - 2 padding + kernel unless `output_size` says another, within a stride of it.
/// Throws ShapeError, ValueError.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride = {},
                    const Dims& padding = {0}, const std::optional<Dims>& output_size = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride = {},
                    const Dims& padding = {0}, const std::optional<Dims>& output_size = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride = {},
                    const Dims& padding = {0}, const std::optional<Dims>& output_size = {});
/// The largest elements of windows that begin at random steps (Graham, arXiv:1412.6071), and where they were in the
/// plane: x [n, c, h, w] or [n, c, d, h, w] (or without n) to `output_size`, or to output_ratio times the input's size
/// (the second and third dimension may have a ratio of their own). `samples` [n, c, dimensions], from [0, 1), says
/// where windows begin; drawn from default_generator() unless given. Throws ShapeError, ValueError.
std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& x, const Dims& kernel,
                                               const std::optional<Dims>& output_size,
                                               std::optional<double> output_ratio = {},
                                               std::optional<double> second_ratio = {},
                                               std::optional<double> third_ratio = {}, const Tensor& samples = {});

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
/// Linear in each spatial dimension ("linear") or nearest ("nearest", "nearest-exact"); input position = scale * output
/// position, scale 0 meaning that it follows from the sizes. The second and third dimension may have their own.
Tensor resize(const Tensor& x, const Dims& size, const std::string& mode, bool align_corners, double scale,
              std::optional<double> second_scale = {}, std::optional<double> third_scale = {});
Tensor resize_backward(const Tensor& g, const Dims& size, const std::string& mode, bool align_corners, double scale,
                       std::optional<double> second_scale = {}, std::optional<double> third_scale = {});
/// One dimension resized by a filter, "linear" or "cubic" (Keys, 1981), with `antialias` as wide as the step.
Tensor resize_axis(const Tensor& x, int64_t dim, int64_t size, const std::string& mode = "linear",
                   bool align_corners = false, bool antialias = false, double scale = 0);
Tensor resize_axis_backward(const Tensor& g, int64_t dim, int64_t size, const std::string& mode = "linear",
                            bool align_corners = false, bool antialias = false, double scale = 0);

}  // namespace strata
