// conv1d, conv2d and their transposes, composed of the products in conv.cpp.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/conv_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// One entry serves all dimensions.
Dims spread(const Dims& d, int spatial) {
  return d.size() == 1 ? Dims::filled(spatial, d[0]) : d;
}

Tensor conv(std::string_view op, int spatial, const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride,
            const Dims& padding, const Dims& dilation, int64_t groups) {
  check<ShapeError>(x.dim() == spatial + 2 || x.dim() == spatial + 1, op, "x needs ", spatial + 2, " dimensions (",
                    spatial + 1, " without a batch), is ", x);
  check<ShapeError>(w.dim() == spatial + 2, op, "weight needs ", spatial + 2, " dimensions, is ", w);
  const bool single = x.dim() == spatial + 1;
  const Tensor batched = single ? unsqueeze(x, 0) : x;
  const Dims s = spread(stride, spatial), p = spread(padding, spatial), d = spread(dilation, spatial);
  const Tensor y = is_floating(x.dtype()) ? convolution(batched, w, bias, s, p, d, groups)
                                          : detail::integer_convolution(op, batched, w, bias, s, p, d, groups);
  return single ? squeeze(y, 0) : y;
}

Tensor conv_transpose(std::string_view op, int spatial, const Tensor& x, const Tensor& w, const Tensor& bias,
                      const Dims& stride, const Dims& padding, const Dims& output_padding, int64_t groups,
                      const Dims& dilation) {
  check<ShapeError>(x.dim() == spatial + 2 || x.dim() == spatial + 1, op, "x needs ", spatial + 2, " dimensions (",
                    spatial + 1, " without a batch), is ", x);
  check<ShapeError>(w.dim() == spatial + 2, op, "weight needs ", spatial + 2, " dimensions, is ", w);
  const Geometry g{spread(stride, spatial), spread(padding, spatial), spread(dilation, spatial), groups};
  check_geometry(op, g, spatial);
  const Dims extra = spread(output_padding, spatial);
  check(extra.size() == spatial, op, "output_padding ", output_padding, " needs ", spatial, " entries");
  const bool single = x.dim() == spatial + 1;
  const Tensor batched = single ? unsqueeze(x, 0) : x;
  Dims size, input, kernel;
  for (int i = 0; i < spatial; ++i) {
    input.push_back(batched.shape()[i + 2]);
    kernel.push_back(w.shape()[i + 2]);
  }
  check_spatial(op, input);
  check_spatial(op, kernel);
  for (int i = 0; i < spatial; ++i) {
    check(extra[i] >= 0 && extra[i] < g.stride[i], op, "output_padding ", extra, " must be smaller than the stride ",
          g.stride);
    size.push_back((input[i] - 1) * g.stride[i] - 2 * g.padding[i] + extent(kernel[i], g.dilation[i]) + extra[i]);
  }
  const Tensor y = convolution_transpose(batched, w, bias, size, g.stride, g.padding, g.dilation, groups);
  return single ? squeeze(y, 0) : y;
}

using ConvSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&,
                             int64_t);
using TransposeSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&,
                                  int64_t, const Dims&);

const Op<ConvSignature> conv1d_op{{
    .schema = "conv1d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], int[] "
              "dilation=[1], int groups=1) -> Tensor",
    .doc =
        "One-dimensional convolution: x [n, in, length] (or [in, length]), weight [out, in / groups, k], bias [out] -> "
        "[n, out, (length + 2 padding - dilation (k - 1) - 1) / stride + 1]. ShapeError for sizes that do not fit.",
    .example = "assert(conv1d(ones({2, 3, 8}), ones({4, 3, 3}), {}, {2}, {1}).shape() == Shape({2, 4, 4}));",
    .composed = [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
                   const Dims& dilation,
                   int64_t groups) { return conv("conv1d", 1, x, w, bias, stride, padding, dilation, groups); },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 8}), s.tensor({4, 3, 3}), s.tensor({4}));
          s.add(s.tensor({2, 8}), s.tensor({4, 1, 2}), std::nullopt, Dims{2}, Dims{1}, Dims{2}, 2).named("no batch");
          s.invalid<ShapeError>("dimensions", s.tensor({2, 3, 8, 8}), s.tensor({4, 3, 3}));
          s.invalid<ValueError>("padding", s.tensor({2, 3, 8}), s.tensor({4, 3, 3}), std::nullopt, Dims{1}, Dims{-1});
        },
    .reference = by_loops::convolved<1>,
}};

const Op<ConvSignature> conv2d_op{{
    .schema = "conv2d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], int[] "
              "dilation=[1], int groups=1) -> Tensor",
    .doc = "Two-dimensional convolution: x [n, in, h, w] (or [in, h, w]), weight [out, in / groups, kh, kw], bias "
           "[out]; sizes as in "
           "conv1d, for each dimension. A list with one entry serves both dimensions. ShapeError for sizes that do not "
           "fit.",
    .example =
        "assert(conv2d(ones({2, 3, 8, 9}), ones({4, 3, 3, 3}), ones({4}), {2}, {1}).shape() == Shape({2, 4, 4, 5}));",
    .composed = [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
                   const Dims& dilation,
                   int64_t groups) { return conv("conv2d", 2, x, w, bias, stride, padding, dilation, groups); },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 5, 6}), s.tensor({4, 3, 3, 2}), s.tensor({4}));
          s.add(s.tensor({2, 3, 5, 6}), s.tensor({4, 3, 3, 2}), std::nullopt, Dims{2}, Dims{1})
              .named("one entry for both");
          s.add(s.tensor({2, 5, 6}), s.tensor({4, 1, 3, 2}), s.tensor({4}), Dims{1, 2}, Dims{1, 0}, Dims{1, 1}, 2)
              .named("no batch");
          s.invalid<ShapeError>("dimensions", s.tensor({5, 6}), s.tensor({4, 3, 3, 2}));
          s.invalid<ValueError>("entries", s.tensor({2, 3, 5, 6}), s.tensor({4, 3, 3, 2}), std::nullopt, Dims{1, 1, 1});
        },
    .reference = by_loops::convolved<2>,
}};

const Op<TransposeSignature> conv_transpose1d_op{{
    .schema = "conv_transpose1d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], int[] "
              "output_padding=[0], "
              "int groups=1, int[] dilation=[1]) -> Tensor",
    .doc = "Transposed one-dimensional convolution: x [n, in, length], weight [in, out / groups, k], bias [out] -> [n, "
           "out, "
           "(length - 1) stride - 2 padding + dilation (k - 1) + 1 + output_padding]. output_padding must be smaller "
           "than the stride "
           "(PyTorch also allows it below the dilation).",
    .composed =
        [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
           const Dims& output_padding, int64_t groups, const Dims& dilation) {
          return conv_transpose("conv_transpose1d", 1, x, w, bias, stride, padding, output_padding, groups, dilation);
        },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 4, 5}), s.tensor({4, 3, 3}), s.tensor({3}));
          s.add(s.tensor({4, 5}), s.tensor({4, 2, 3}), std::nullopt, Dims{2}, Dims{1}, Dims{1}, 2, Dims{2})
              .named("no batch");
          s.invalid<ValueError>("smaller than the stride", s.tensor({2, 4, 5}), s.tensor({4, 3, 3}), std::nullopt,
                                Dims{2}, Dims{0}, Dims{2});
        },
    .reference = by_loops::convolved_transposed<1>,
}};

const Op<TransposeSignature> conv_transpose2d_op{{
    .schema = "conv_transpose2d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], int[] "
              "output_padding=[0], "
              "int groups=1, int[] dilation=[1]) -> Tensor",
    .doc = "Transposed two-dimensional convolution: x [n, in, h, w], weight [in, out / groups, kh, kw], bias [out]; "
           "sizes as in "
           "conv_transpose1d, for each dimension.",
    .example =
        "assert(conv_transpose2d(ones({2, 4, 3, 3}), ones({4, 5, 2, 2}), {}, {2}).shape() == Shape({2, 5, 6, 6}));",
    .composed =
        [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
           const Dims& output_padding, int64_t groups, const Dims& dilation) {
          return conv_transpose("conv_transpose2d", 2, x, w, bias, stride, padding, output_padding, groups, dilation);
        },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 4, 3, 4}), s.tensor({4, 3, 3, 2}), s.tensor({3}));
          s.add(s.tensor({2, 4, 3, 4}), s.tensor({4, 2, 3, 2}), s.tensor({4}), Dims{2, 1}, Dims{1, 0}, Dims{1, 0}, 2,
                Dims{1, 2})
              .named("all options");
          s.invalid<ShapeError>("dimensions", s.tensor({2, 4, 3}), s.tensor({4, 3, 3}));
          s.invalid<ShapeError>("spatial size", s.tensor({1, 1, 1, 1}), s.tensor({1, 1, 1, 1}), std::nullopt, Dims{1},
                                Dims{1});
        },
    .reference = by_loops::convolved_transposed<2>,
}};

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups) {
  return conv1d_op(x, weight, bias, stride, padding, dilation, groups);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups) {
  return conv2d_op(x, weight, bias, stride, padding, dilation, groups);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride,
                        const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  return conv_transpose1d_op(x, weight, bias, stride, padding, output_padding, groups, dilation);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride,
                        const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  return conv_transpose2d_op(x, weight, bias, stride, padding, output_padding, groups, dilation);
}

}  // namespace strata
