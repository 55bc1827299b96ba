#include "strata/ops/columns/columns.h"

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/columns/columns_kernels.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using columns::Geometry;
using columns::Side;

// Both entries of a list.
Dims pair(std::string_view op, const Dims& d, int64_t least, std::string_view name) {
  check(d.size() == 1 || d.size() == 2, op, name, " ", d, " needs one or two entries");
  for (const int64_t v : d) check(v >= least, op, name, " must be at least ", least, ", got ", d);
  return {d[0], d.back()};
}

Side side(std::string_view op, int d, int64_t size, const Dims& kernel, const Dims& dilation, const Dims& padding,
          const Dims& stride) {
  Side s;
  s.size = size;
  s.kernel = pair(op, kernel, 1, "kernel")[d], s.dilation = pair(op, dilation, 1, "dilation")[d];
  s.padding = pair(op, padding, 0, "padding")[d], s.stride = pair(op, stride, 1, "stride")[d];
  // Any numbers come here, also those whose sums and products do not fit.
  const __int128 wide = __int128{size} + __int128{2} * s.padding,
                 room = wide - __int128{s.dilation} * (s.kernel - 1) - 1;
  check<ShapeError>(room >= 0 && wide < (__int128{1} << 62), op, "a kernel of ", kernel, " with dilation ", dilation,
                    " has no windows in a size of ", size, " with padding ", padding);
  if (s.kernel == 1) s.dilation = 1;                              // there is nothing to step over
  s.stride = std::min(s.stride, static_cast<int64_t>(room) + 1);  // a longer one leaves one window, too
  s.windows = static_cast<int64_t>(room) / s.stride + 1;
  return s;
}

// An image's geometry from its last two sizes; planes are counted later.
Geometry geometry(std::string_view op, int64_t h, int64_t w, const Dims& kernel, const Dims& dilation,
                  const Dims& padding, const Dims& stride) {
  Geometry g;
  g.h = side(op, 0, h, kernel, dilation, padding, stride);
  g.w = side(op, 1, w, kernel, dilation, padding, stride);
  return g;
}

Geometry image_geometry(const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding,
                        const Dims& stride) {
  check<ShapeError>(x.dim() == 3 || x.dim() == 4, "im2col", "wants [N, C, H, W] or [C, H, W], got ", x);
  Geometry g = geometry("im2col", x.size(-2), x.size(-1), kernel, dilation, padding, stride);
  g.planes = (x.dim() == 4 ? x.size(0) : 1) * x.size(-3);
  return g;
}

Geometry column_geometry(const Tensor& y, const Dims& output_size, const Dims& kernel, const Dims& dilation,
                         const Dims& padding, const Dims& stride) {
  constexpr std::string_view op = "col2im";
  check<ShapeError>(y.dim() == 2 || y.dim() == 3, op, "wants [N, C kh kw, windows] or [C kh kw, windows], got ", y);
  check<DTypeError>(y.dtype() != DType::boolean, op, "does not take ", y);
  const Dims size = pair(op, output_size, 1, "output_size");
  Geometry g = geometry(op, size[0], size[1], kernel, dilation, padding, stride);
  const __int128 each = __int128{g.h.kernel} * g.w.kernel;
  check<ShapeError>(y.size(-2) % each == 0 && __int128{g.h.windows} * g.w.windows == y.size(-1), op, y.shape(),
                    " does not hold ", g.h.windows, " x ", g.w.windows, " windows of ", g.h.kernel, " x ", g.w.kernel);
  g.planes = (y.dim() == 3 ? y.size(0) : 1) * (y.size(-2) / static_cast<int64_t>(each));
  return g;
}

Shape column_shape(const Tensor& x, const Geometry& g) {
  constexpr __int128 kMost = __int128{1} << 62;
  const __int128 rows = __int128{x.size(-3)} * g.h.kernel * g.w.kernel, windows = __int128{g.h.windows} * g.w.windows;
  check<ShapeError>(rows < kMost && windows < kMost, "im2col", "the columns of ", x, " are too many");
  Shape s{static_cast<int64_t>(rows), static_cast<int64_t>(windows)};
  if (x.dim() == 4) s.insert(0, x.size(0));
  return s;
}
Shape image_shape(const Tensor& y, const Geometry& g) {
  Shape s{y.size(-2) / (g.h.kernel * g.w.kernel), g.h.size, g.w.size};
  if (y.dim() == 3) s.insert(0, y.size(0));
  return s;
}

// Calls f(dense input, dense result).
template <class F>
void dense(Tensor& y, const Tensor& x, F&& f) {
  if (y.numel() == 0) return;
  const Tensor from = x.contiguous();
  if (y.is_contiguous()) return f(from, y);
  const Tensor copy = empty(y.meta());
  f(from, copy);
  y.copy_(copy);
}

// Calls f(place in the columns, place in the images) for every element of a column that lies inside.
template <class F>
void each_pair(const Geometry& g, F&& f) {
  int64_t at = 0;
  naive::each({g.planes, g.h.kernel, g.w.kernel, g.h.windows, g.w.windows}, [&](const Dims& p) {
    const int64_t row = p[3] * g.h.stride + p[1] * g.h.dilation - g.h.padding,
                  col = p[4] * g.w.stride + p[2] * g.w.dilation - g.w.padding;
    if (row >= 0 && row < g.h.size && col >= 0 && col < g.w.size) f(at, (p[0] * g.h.size + row) * g.w.size + col);
    ++at;
  });
}

Cost move_cost(const Tensor& from, const Shape& to, double flops) {
  return {flops, static_cast<double>(from.nbytes()) +
                     static_cast<double>(to.product()) * static_cast<double>(size_of(from.dtype()))};
}

const Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&)> im2col_op{{
    .schema = "im2col(Tensor x, int[] kernel, int[] dilation=[1], int[] padding=[0], int[] stride=[1]) -> Tensor",
    .shard = "n ...! -> n ...!",
    .doc = "Windows of x [N, C, H, W] (or [C, H, W]) as columns [N, C kh kw, windows], 0 outside: what makes a "
           "convolution a matrix product. There are (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1 windows "
           "along a dimension, rounded down. A list with one entry serves both dimensions. PyTorch's "
           "nn.functional.unfold. ShapeError, ValueError.",
    .example = "assert(im2col(ones({1, 3, 4, 5}), {2, 3}).shape() == Shape({1, 18, 9}));",
    .infer =
        [](const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding, const Dims& stride) {
          return like(x).with_shape(column_shape(x, image_geometry(x, kernel, dilation, padding, stride)));
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& kernel, const Dims& dilation,
                                 const Dims& padding, const Dims& stride) {
      const Geometry g = image_geometry(x, kernel, dilation, padding, stride);
      dense(y, x, [&](const Tensor& from, const Tensor& to) {
        if constexpr (on.cuda)
          im2col_cuda(g, x.dtype(), from.raw_data(), to.raw_data());
        else
          cpu::im2col(g, x.dtype(), from.raw_data(), to.raw_data());
      });
    }),
    .backward =
        [](Backward& b, const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding,
           const Dims& stride) {
          b.set(0, col2im(b.gy(), {x.size(-2), x.size(-1)}, kernel, dilation, padding, stride));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding, const Dims& stride) {
          return move_cost(x, column_shape(x, image_geometry(x, kernel, dilation, padding, stride)), 0);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4, 5}), Dims{2, 3});
          s.add(s.tensor({2, 3, 5, 4}), Dims{2}, Dims{2, 1}, Dims{1}, Dims{3, 2}).named("dilated, padded, strided");
          s.add(s.tensor({2, 4, 5}), Dims{3}, Dims{1}, Dims{2, 1}).named("no batch");
          s.add(transpose(s.tensor({2, 5, 3, 4}), 1, 3), Dims{1, 2}, Dims{1}, Dims{0, 3}, Dims{1, 2})
              .named("transposed, wide padding");
          s.add(s.tensor({2, 2, 3, 8}), Dims{3}, Dims{1}, Dims{1}).named("rows of whole vectors");
          s.add(s.tensor({1, 2, 3, 8}), Dims{2, 3}, Dims{1}, Dims{0, 1}, Dims{1, 2}).named("whole vectors, strided");
          s.add(s.tensor({0, 3, 4, 5}), Dims{2}).named("empty batch");
          s.invalid<ShapeError>("wants", s.tensor({4, 5}), Dims{2});
          s.invalid<ShapeError>("no windows", s.tensor({1, 2, 3, 3}), Dims{4});
          s.invalid<ValueError>("kernel", s.tensor({1, 2, 3, 3}), Dims{0});
          s.invalid<ValueError>("entries", s.tensor({1, 2, 3, 3}), Dims{1, 1, 1});
          s.invalid<ValueError>("stride", s.tensor({1, 2, 3, 3}), Dims{2}, Dims{1}, Dims{0}, Dims{0});
          if (s.benchmarking()) s.bench(s.tensor({16, 64, 56, 56}), Dims{3}, Dims{1}, Dims{1});
        },
    .reference = [](const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding,
                    const Dims& stride) -> Tensor {
      const Geometry g = image_geometry(x, kernel, dilation, padding, stride);
      const naive::Array from(x);
      naive::Array y(column_shape(x, g));
      each_pair(g, [&](int64_t column, int64_t image) { y.flat(column) = from.flat(image); });
      return y;
    },
}};

const Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, const Dims&)> col2im_op{{
    .schema = "col2im(Tensor x, int[] output_size, int[] kernel, int[] dilation=[1], int[] padding=[0], int[] "
              "stride=[1]) -> Tensor",
    .shard = "n ...! -> n ...!",
    .doc =
        "Columns x [N, C kh kw, windows] (or [C kh kw, windows]) added up where im2col of images of output_size took "
        "them from: [N, C, H, W], the transpose of im2col. PyTorch's nn.functional.fold. ShapeError, ValueError, "
        "DTypeError for bool.",
    .example = "assert(col2im(ones({1, 18, 9}), {4, 5}, {2, 3}).shape() == Shape({1, 3, 4, 5}));",
    .infer =
        [](const Tensor& y, const Dims& size, const Dims& kernel, const Dims& dilation, const Dims& padding,
           const Dims& stride) {
          return like(y).with_shape(image_shape(y, column_geometry(y, size, kernel, dilation, padding, stride)));
        },
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& y, const Dims& size, const Dims& kernel,
                                 const Dims& dilation, const Dims& padding, const Dims& stride) {
      const Geometry g = column_geometry(y, size, kernel, dilation, padding, stride);
      dense(x, y, [&](const Tensor& from, const Tensor& to) {
        if constexpr (on.cuda)
          col2im_cuda(g, y.dtype(), from.raw_data(), to.raw_data());
        else
          cpu::col2im(g, y.dtype(), from.raw_data(), to.raw_data());
      });
    }),
    .backward = [](Backward& b, const Tensor&, const Dims&, const Dims& kernel, const Dims& dilation,
                   const Dims& padding,
                   const Dims& stride) { b.set(0, im2col(b.gy(), kernel, dilation, padding, stride)); },
    .dtypes = kFloats | kInts,
    .cost =
        [](const Tensor& y, const Dims& size, const Dims& kernel, const Dims& dilation, const Dims& padding,
           const Dims& stride) {
          return move_cost(y, image_shape(y, column_geometry(y, size, kernel, dilation, padding, stride)),
                           static_cast<double>(y.numel()));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 18, 9}), Dims{4, 5}, Dims{2, 3});
          s.add(s.tensor({2, 12, 6}), Dims{5, 4}, Dims{2}, Dims{2, 1}, Dims{1}, Dims{3, 2})
              .named("dilated, padded, strided");
          s.add(s.tensor({18, 30}), Dims{4, 5}, Dims{3}, Dims{1}, Dims{2, 1}).named("no batch");
          s.add(transpose(s.tensor({2, 9, 18}), 1, 2), Dims{4, 5}, Dims{2, 3}).named("transposed");
          s.add(s.tensor({1, 4, 4}), Dims{5, 5}, Dims{2}, Dims{1}, Dims{0}, Dims{3}).named("apart");
          s.invalid<ShapeError>("does not hold", s.tensor({1, 4, 5}), Dims{4, 4}, Dims{2});
          s.invalid<ShapeError>("does not hold", s.tensor({1, 5, 9}), Dims{4, 4}, Dims{2});
          s.invalid<ShapeError>("wants", s.tensor({4}), Dims{4, 4}, Dims{2});
          s.invalid<ShapeError>("no windows", s.tensor({1, 16, 1}), Dims{3, 3}, Dims{4});
          s.invalid<ValueError>("output_size", s.tensor({1, 4, 1}), Dims{0, 2}, Dims{2});
          s.invalid<DTypeError>("bool", s.boolean({1, 4, 9}), Dims{4, 4}, Dims{2});
          if (s.benchmarking()) s.bench(s.tensor({16, 576, 3136}), Dims{56, 56}, Dims{3}, Dims{1}, Dims{1});
        },
    .reference = [](const Tensor& y, const Dims& size, const Dims& kernel, const Dims& dilation, const Dims& padding,
                    const Dims& stride) -> Tensor {
      const Geometry g = column_geometry(y, size, kernel, dilation, padding, stride);
      const naive::Array from(y);
      naive::Array x(image_shape(y, g));
      each_pair(g, [&](int64_t column, int64_t image) { x.flat(image) += from.flat(column); });
      return x;
    },
}};

}  // namespace

Tensor im2col(const Tensor& x, const Dims& kernel, const Dims& dilation, const Dims& padding, const Dims& stride) {
  return im2col_op(x, kernel, dilation, padding, stride);
}
Tensor col2im(const Tensor& columns, const Dims& output_size, const Dims& kernel, const Dims& dilation,
              const Dims& padding, const Dims& stride) {
  return col2im_op(columns, output_size, kernel, dilation, padding, stride);
}

}  // namespace strata
