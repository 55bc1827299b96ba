// conv3d and its transpose: their checks, and what they are called with.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/conv_reference_inl.h"
#include "strata/ops/conv/conv_volume_kernel.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Dims spread(const Dims& d) {
  return d.size() == 1 ? Dims::filled(3, d[0]) : d;
}
Dims last3(const Tensor& t) {
  return {t.size(-3), t.size(-2), t.size(-1)};
}

void check_volume(std::string_view op, const Tensor& x, const Tensor& w) {
  check<ShapeError>(x.dim() == 5 || x.dim() == 4, op, "x needs 5 dimensions (4 without a batch), is ", x);
  check<ShapeError>(w.dim() == 5, op, "weight needs 5 dimensions, is ", w);
  check_spatial(op, last3(x));
  check_spatial(op, last3(w));
  for (int64_t v : last3(w)) check<ShapeError>(v >= 1, op, "kernel sizes must be at least 1, weight is ", w);
}

Tensor conv3d_of(const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
                 const Dims& dilation, int64_t groups) {
  constexpr std::string_view op = "conv3d";
  check_volume(op, x, w);
  const Geometry g{spread(stride), spread(padding), spread(dilation), groups};
  check_geometry(op, g, 3);
  if (x.dim() == 4) return squeeze(conv3d_of(unsqueeze(x, 0), w, bias, g.stride, g.padding, g.dilation, groups), 0);
  if (!is_floating(x.dtype()))
    return detail::integer_convolution(op, x, w, bias, g.stride, g.padding, g.dilation, groups);
  for (int i = 0; i < 3; ++i)
    check<ShapeError>(x.size(2 + i) + 2 * g.padding[i] >= extent(w.size(2 + i), g.dilation[i]), op, "a kernel of ",
                      last3(w), " with dilation ", g.dilation, " does not fit an input of ", last3(x), " with padding ",
                      g.padding);
  check<ShapeError>(w.size(1) * groups == x.size(1), op, "x is ", x, " and weight is ", w, " with ", groups,
                    " groups, wants x [n, ", groups, " times ", w.size(1), ", ..]");
  return volume_convolution(x, w, bias, g);
}

Tensor conv_transpose3d_of(const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride,
                           const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  constexpr std::string_view op = "conv_transpose3d";
  check_volume(op, x, w);
  const Geometry g{spread(stride), spread(padding), spread(dilation), groups};
  check_geometry(op, g, 3);
  const Dims extra = spread(output_padding);
  check(extra.size() == 3, op, "output_padding ", output_padding, " needs 3 entries");
  if (x.dim() == 4)
    return squeeze(conv_transpose3d_of(unsqueeze(x, 0), w, bias, g.stride, g.padding, extra, groups, g.dilation), 0);
  check<ShapeError>(x.size(1) == w.size(0), op, "x is ", x, " and weight is ", w,
                    ", wants as many channels in x as weight has rows");
  Dims size;
  for (int i = 0; i < 3; ++i) {
    check(extra[i] >= 0 && extra[i] < g.stride[i], op, "output_padding ", extra, " must be smaller than the stride ",
          g.stride);
    size.push_back((x.size(2 + i) - 1) * g.stride[i] - 2 * g.padding[i] + extent(w.size(2 + i), g.dilation[i]) +
                   extra[i]);
    check<ShapeError>(size[i] >= 1, op, "the result's spatial size would be ", size);
  }
  const int64_t out = w.size(1) * groups;
  if (bias.defined())
    check<ShapeError>(bias.dim() == 1 && bias.size(0) == out, op, "bias is ", bias, ", wants [", out, "]");
  return volume_transpose(x, w, bias, size, g);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, int64_t)> conv3d_op{
    {
        .schema = "conv3d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], int[] "
                  "dilation=[1], int groups=1) -> Tensor",
        .doc =
            "Three-dimensional convolution: x [n, in, d, h, w] (or [in, d, h, w]), weight [out, in / groups, kd, kh, "
            "kw], bias [out]; sizes as in conv1d, for each dimension. A list with one entry serves all three. "
            "Computed as a two-dimensional convolution with in * kd channels, for which x is copied kd times; on "
            "Hopper's tensor cores without copies. "
            "ShapeError for sizes that do not fit.",
        .example = "assert(conv3d(ones({2, 3, 4, 8, 9}), ones({4, 3, 3, 3, 3}), ones({4}), {2}, {1}).shape() == "
                   "Shape({2, 4, 2, 4, 5}));",
        .composed = conv3d_of,
        .dtypes = kFloats,
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 4, 5, 3}), s.tensor({4, 3, 3, 3, 2}), s.tensor({4}));
              s.add(s.tensor({2, 4, 5, 4, 3}), s.tensor({4, 2, 2, 3, 2}), std::nullopt, Dims{2, 1, 2}, Dims{1, 1, 0},
                    Dims{2, 1, 1}, 2)
                  .named("all options");
              s.add(s.tensor({2, 3, 4, 4}), s.tensor({3, 2, 1, 2, 2}), s.tensor({3}), Dims{1}, Dims{1})
                  .named("no batch");
              s.add(s.tensor({0, 2, 3, 4, 4}), s.tensor({3, 2, 2, 2, 2}), s.tensor({3})).named("empty batch");
              s.invalid<ShapeError>("dimensions", s.tensor({2, 3, 8}), s.tensor({4, 3, 3, 3, 3}));
              s.invalid<ShapeError>("does not fit", s.tensor({2, 3, 2, 8, 8}), s.tensor({4, 3, 3, 3, 3}));
              s.invalid<ShapeError>("groups", s.tensor({2, 3, 4, 4, 4}), s.tensor({4, 2, 3, 3, 3}));
              s.invalid<ValueError>("entries", s.tensor({2, 3, 4, 4, 4}), s.tensor({4, 3, 3, 3, 3}), std::nullopt,
                                    Dims{1, 1});
              if (s.benchmarking())
                s.bench(s.tensor({4, 64, 16, 28, 28}), s.tensor({64, 64, 3, 3, 3}), s.tensor({64}), Dims{1}, Dims{1});
            },
        .reference = by_loops::convolved<3>,
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, int64_t,
                const Dims&)>
    conv_transpose3d_op{{
        .schema = "conv_transpose3d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], "
                  "int[] output_padding=[0], int groups=1, int[] dilation=[1]) -> Tensor",
        .doc =
            "Transposed three-dimensional convolution: x [n, in, d, h, w], weight [in, out / groups, kd, kh, kw], "
            "bias [out]; sizes as in conv_transpose1d, for each dimension. Computed as a transposed two-dimensional "
            "convolution with out * kd channels, whose slices are added up; on Hopper's tensor cores as one product.",
        .example = "assert(conv_transpose3d(ones({2, 4, 3, 3, 3}), ones({4, 5, 2, 2, 2}), {}, {2}).shape() == "
                   "Shape({2, 5, 6, 6, 6}));",
        .composed = conv_transpose3d_of,
        .dtypes = kFloats,
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 2, 3, 2}), s.tensor({3, 2, 3, 2, 2}), s.tensor({2}));
              s.add(s.tensor({2, 4, 2, 3, 2}), s.tensor({4, 2, 2, 3, 2}), s.tensor({4}), Dims{3, 1, 2}, Dims{1, 1, 0},
                    Dims{2, 0, 1}, 2, Dims{2, 1, 1})
                  .named("all options");
              s.add(s.tensor({3, 2, 3, 2}), s.tensor({3, 2, 2, 2, 2}), s.tensor({2}), Dims{2}).named("no batch");
              s.invalid<ShapeError>("dimensions", s.tensor({2, 4, 3}), s.tensor({4, 3, 3, 3, 3}));
              s.invalid<ShapeError>("spatial size", s.tensor({1, 1, 1, 1, 1}), s.tensor({1, 1, 1, 1, 1}), std::nullopt,
                                    Dims{1}, Dims{1});
              s.invalid<ShapeError>("channels", s.tensor({1, 2, 2, 2, 2}), s.tensor({1, 1, 1, 1, 1}));
              s.invalid<ValueError>("smaller than the stride", s.tensor({1, 2, 2, 2, 2}), s.tensor({2, 1, 2, 2, 2}),
                                    std::nullopt, Dims{2}, Dims{0}, Dims{2});
              if (s.benchmarking())
                s.bench(s.tensor({4, 128, 8, 14, 14}), s.tensor({128, 64, 2, 2, 2}), s.tensor({64}), Dims{2});
            },
        .reference = by_loops::convolved_transposed<3>,
    }};

}  // namespace

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups) {
  return conv3d_op(x, weight, bias, stride, padding, dilation, groups);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride,
                        const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  return conv_transpose3d_op(x, weight, bias, stride, padding, output_padding, groups, dilation);
}

}  // namespace strata
