#pragma once
// Convolutions (cross-correlations, as everywhere in deep learning) in one to three dimensions, and their transposes.
// Names, argument order, layouts (NCL, NCHW, NCDHW) and size formulas are PyTorch's. A missing batch dimension is
// allowed. Lists of sizes may have one entry, which then serves all spatial dimensions.

#include <string_view>

#include "strata/core/tensor.h"

namespace strata {

/// x [n, in, length], weight [out, in / groups, k], bias [out] or undefined -> [n, out, length'],
/// length' = (length + 2 padding - dilation (k - 1) - 1) / stride + 1, rounded down. Throws ShapeError, ValueError.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
              const Dims& padding = {0}, const Dims& dilation = {1}, int64_t groups = 1);
/// x [n, in, h, w], weight [out, in / groups, kh, kw]; sizes as in conv1d, for each dimension.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
              const Dims& padding = {0}, const Dims& dilation = {1}, int64_t groups = 1);
/// x [n, in, d, h, w], weight [out, in / groups, kd, kh, kw]; a convolution of planes, for which x may be copied.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
              const Dims& padding = {0}, const Dims& dilation = {1}, int64_t groups = 1);
/// The gradient of conv1d with respect to its input, as an op: x [n, in, length], weight [in, out / groups, k] ->
/// [n, out, (length - 1) stride - 2 padding + dilation (k - 1) + 1 + output_padding]; output_padding < stride.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
                        const Dims& padding = {0}, const Dims& output_padding = {0}, int64_t groups = 1,
                        const Dims& dilation = {1});
/// The same in two dimensions.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
                        const Dims& padding = {0}, const Dims& output_padding = {0}, int64_t groups = 1,
                        const Dims& dilation = {1});
/// In three dimensions.
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& stride = {1},
                        const Dims& padding = {0}, const Dims& output_padding = {0}, int64_t groups = 1,
                        const Dims& dilation = {1});

/// The three products that the above and their gradients are made of; lists have one entry for each spatial dimension.
/// y = convolution(x, w); x = convolution_transpose(y, w) with spatial size `size`; w = convolution_weight(x, y) with
/// spatial size `kernel`: each is linear in both arguments, and the other two are its gradients.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
                   const Dims& dilation, int64_t groups);
Tensor convolution_transpose(const Tensor& y, const Tensor& weight, const Tensor& bias, const Dims& size,
                             const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups);
Tensor convolution_weight(const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
                          const Dims& dilation, int64_t groups);

/// Whether convolutions of f32 on a card, and what recurrent networks multiply for all steps at once, may round their
/// operands to TF32 (10 bits of mantissa) for the tensor cores, as cuda::set_allow_tf32() says of other products. On at first, as in PyTorch, whose backends.cudnn.allow_tf32 it is; sums
/// run in f32 either way. Of the process.
void set_allow_tf32_convolutions(bool on);
bool allow_tf32_convolutions();

namespace detail {
/// conv1d, conv2d and conv3d of integers, which wrap around: x [n, in, ..] and weight of one dtype, windows times
/// weight by matmul. Lists have an entry for each spatial dimension.
Tensor integer_convolution(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups);
}  // namespace detail

/// The convolution of one to three dimensions with a stride of 1 whose result has the sizes of x: padded by as much at
/// both ends, by one more behind where that is odd. Throws ShapeError.
Tensor conv_same(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Dims& dilation = {1},
                 int64_t groups = 1);

}  // namespace strata
