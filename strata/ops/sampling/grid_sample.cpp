#include <limits>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/sampling/grid_sample_inl.h"
#include "strata/ops/sampling/sampling.h"
#include "strata/ops/sort/sort.h"

namespace strata {
namespace {
using sampling::Call;

// Checks a call; `size` is the input's spatial size.
Call call_of(std::string_view op, const TensorMeta& x, const Dims& size, const Tensor& grid, const std::string& mode,
             const std::string& padding, bool align_corners) {
  check<DTypeError>(is_floating(x.dtype), op, "needs a floating dtype, got ", x.dtype);
  check<DTypeError>(x.dtype == grid.dtype(), op, "the input is ", x.dtype, ", the grid ", grid.dtype());
  const int dims = x.shape.size() - 2;
  check<ShapeError>((dims == 2 || dims == 3) && size.size() == dims && grid.dim() == dims + 2 &&
                        grid.size(-1) == dims && grid.size(0) == x.shape[0],
                    op, "a grid of ", grid.shape(), " does not belong to an input of ", x.shape);
  for (const int64_t s : size) check<ShapeError>(s > 0, op, "an input of size ", size, " has nothing to sample");
  check(mode == "bilinear" || mode == "nearest" || mode == "bicubic", op,
        "mode must be bilinear, nearest or bicubic, got \"", mode, "\"");
  check(mode != "bicubic" || dims == 2, op, "bicubic interpolation is for inputs of four dimensions, got ", x.shape);
  check(padding == "zeros" || padding == "border" || padding == "reflection", op,
        "padding_mode must be zeros, border or reflection, got \"", padding, "\"");
  Call c;
  c.dtype = x.dtype;
  c.mode = mode == "nearest"   ? sampling::Mode::nearest
           : mode == "bicubic" ? sampling::Mode::cubic
                               : sampling::Mode::linear;
  c.padding = padding == "zeros"    ? sampling::Padding::zeros
              : padding == "border" ? sampling::Padding::border
                                    : sampling::Padding::reflection;
  c.align_corners = align_corners;
  c.dims = dims;
  c.batch = x.shape[0], c.channels = x.shape[1];
  c.points = 1;
  // Of tensors without elements the sizes may be anything.
  int64_t plane = 1;
  const auto times = [&](int64_t& product, int64_t n, const auto& sizes) {
    check<ShapeError>(n == 0 || product <= std::numeric_limits<int64_t>::max() / n, op, sizes, " are too many places");
    product *= n;
  };
  for (int d = 0; d < dims; ++d) {
    times(c.points, grid.size(d + 1), grid.shape());
    times(plane, size[d], size);
    c.size[3 - dims + d] = size[d];
  }
  return c;
}

Dims spatial_size(const Shape& shape) {
  Dims d;
  for (int i = 2; i < shape.size(); ++i) d.push_back(shape[i]);
  return d;
}
// [batch, channels] and those sizes.
Shape image_shape(const Shape& batch_and_channels, std::span<const int64_t> sizes) {
  Shape s{batch_and_channels[0], batch_and_channels[1]};
  for (const int64_t v : sizes) s.push_back(v);
  return s;
}

TensorMeta infer_forward(const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding,
                         bool align_corners) {
  call_of("grid_sample", like(x), spatial_size(x.shape()), grid, mode, padding, align_corners);
  const Shape g = grid.shape();
  return like(x).with_shape(image_shape(x.shape(), std::span<const int64_t>(g.begin() + 1, g.end() - 1)));
}

// The call of a gradient g for an input of that size.
Call backward_call(std::string_view op, const Tensor& g, const Tensor& grid, const Dims& size, const std::string& mode,
                   const std::string& padding, bool align_corners) {
  const Call c = call_of(op, like(g), size, grid, mode, padding, align_corners);
  for (int d = 0; d < c.dims; ++d)
    check<ShapeError>(g.size(d + 2) == grid.size(d + 1), op, "g is ", g, ", the grid ", grid);
  return c;
}

void put(Tensor& result, const Tensor& made) {
  if (!made.same_as(result)) result.copy_(made);
}
Tensor dense(const Tensor& result) {
  return result.is_contiguous() ? result : empty(result.meta());
}

Cost sampling_cost(const Tensor& x, const Tensor& grid, int64_t results) {
  const double points = static_cast<double>(grid.numel()) / static_cast<double>(std::max<int64_t>(grid.size(-1), 1));
  const double each = static_cast<double>(x.size(1)) * points;
  return {8 * each, static_cast<double>(x.nbytes() + grid.nbytes()) +
                        static_cast<double>(results) * static_cast<double>(size_of(x.dtype()))};
}

// Positions that are not where the function has kinks, in the input and around it.
Tensor positions(Samples& s, const Shape& shape, const Dims& size, bool align_corners) {
  std::vector<double> v = s.off_grid(shape, 0.25).to_vector<double>();
  const auto dims = static_cast<size_t>(size.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const int64_t n = size[static_cast<int64_t>(dims - 1 - i % dims)];
    const double at = 2 * v[i] + static_cast<double>(n / 2);  // a quarter off halves and whole numbers
    v[i] = align_corners ? (n > 1 ? 2 * at / static_cast<double>(n - 1) - 1 : at)
                         : (2 * at + 1) / static_cast<double>(n) - 1;
  }
  return from_span<double>(v, shape).to(s.dtype());
}

const char* const kModes[] = {"bilinear", "nearest", "bicubic"};
const char* const kPaddings[] = {"zeros", "border", "reflection"};

// Calls f(mode, padding, align) for every choice.
template <class F>
void every_option(F&& f) {
  for (const char* mode : kModes)
    for (const char* padding : kPaddings)
      for (const bool align : {false, true}) f(mode, padding, align);
}
std::string label(const char* mode, const char* padding, bool align) {
  return cat(mode, ", ", padding, align ? ", align corners" : "");
}

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, const std::string&, bool)> grid_sample_op{{
    .schema = "grid_sample(Tensor x, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", bool "
              "align_corners=false) -> Tensor",
    .shard = "n ...!, n ...! -> n ...!",
    .doc = "x [N, C, H, W] at the positions grid [N, H', W', 2], (column, row) from -1 to 1 (or [N, C, D, H, W] at [N, "
           "D', H', W', 3]): [N, C, H', W'] (Jaderberg et al., arXiv:1506.02025). Modes bilinear, nearest and, in two "
           "dimensions, bicubic (Keys, 1981, a = -0.75); outside are zeros, the border or a reflection at it. With "
           "align_corners -1 and 1 are the middles of the corner elements, else the corners of the image. Positions "
           "that are no number are outside. ShapeError, DTypeError, ValueError.",
    .example = "Tensor y = grid_sample(ones({1, 3, 4, 4}), zeros({1, 2, 5, 2})); assert(y.shape() == Shape({1, 3, 2, "
               "5}) && y.sum().item() == 30);",
    .infer = infer_forward,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& grid, const std::string& mode,
                                 const std::string& padding, bool align) {
      if (y.numel() == 0) return;
      const Call c = call_of("grid_sample", like(x), spatial_size(x.shape()), grid, mode, padding, align);
      const Tensor from = x.contiguous(), at = grid.contiguous(), to = dense(y);
      if constexpr (on.cuda)
        grid_sample_cuda(c, from.raw_data(), at.raw_data(), to.raw_data());
      else
        cpu::grid_sample(c, from.raw_data(), at.raw_data(), to.raw_data());
      put(y, to);
    }),
    .saves = "x:grid grid",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding,
           bool align) {
          if (b.needs(0))
            b.set(0, grid_sample_backward_input(b.gy(), grid, spatial_size(x.shape()), mode, padding, align));
          if (b.needs(1)) b.set(1, grid_sample_backward_grid(b.gy(), x, grid, mode, padding, align));
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding, bool align) {
          return sampling_cost(x, grid, infer_forward(x, grid, mode, padding, align).shape.product());
        },
    .samples =
        [](Samples& s) {
          every_option([&](const char* mode, const char* padding, bool align) {
            s.add(s.tensor({2, 3, 3, 5}), positions(s, {2, 3, 2, 2}, {3, 5}, align), mode, padding, align)
                .named(label(mode, padding, align));
            if (std::string_view(mode) == "bicubic") return;
            s.add(s.tensor({1, 2, 2, 4, 3}), positions(s, {1, 2, 1, 3, 3}, {2, 4, 3}, align), mode, padding, align)
                .named(cat("three dimensions, ", label(mode, padding, align)));
          });
          s.add(transpose(s.tensor({2, 3, 4, 9}), 0, 1), transpose(positions(s, {5, 3, 1, 2}, {4, 9}, false), 0, 1))
              .named("strided");
          s.add(s.tensor({2, 1, 1, 1}), positions(s, {2, 2, 2, 2}, {1, 1}, true), "bilinear", "reflection", true)
              .named("one element");
          s.add(s.tensor({0, 2, 3, 3}), s.tensor({0, 2, 2, 2})).named("empty batch");
          s.add(s.tensor({2, 2, 3, 3}), s.tensor({2, 0, 2, 2})).named("no positions");
          s.invalid<ShapeError>("does not belong", s.tensor({1, 2, 3, 3}), s.tensor({1, 2, 2, 3}));
          s.invalid<ShapeError>("does not belong", s.tensor({1, 2, 3, 3}), s.tensor({2, 2, 2, 2}));
          s.invalid<ShapeError>("does not belong", s.tensor({2, 3, 3}), s.tensor({2, 2, 2}));
          s.invalid<ShapeError>("nothing to sample", s.tensor({1, 2, 0, 3}), s.tensor({1, 2, 2, 2}));
          s.invalid<ValueError>("mode must be", s.tensor({1, 2, 3, 3}), s.tensor({1, 2, 2, 2}), "cubic");
          s.invalid<ValueError>("four dimensions", s.tensor({1, 1, 2, 2, 2}), s.tensor({1, 2, 2, 2, 3}), "bicubic");
          s.invalid<ValueError>("padding_mode", s.tensor({1, 2, 3, 3}), s.tensor({1, 2, 2, 2}), "bilinear", "edge");
          s.invalid<DTypeError>("floating", s.tensor({1, 2, 3, 3}, DType::i64), s.tensor({1, 2, 2, 2}));
          if (s.benchmarking()) s.bench(s.tensor({8, 64, 128, 128}), s.uniform({8, 128, 128, 2}, -1, 1));
        },
    .reference =
        [](const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding, bool align) {
          const Call c = call_of("grid_sample", like(x), spatial_size(x.shape()), grid, mode, padding, align);
          return sampling::sampled(c, x, grid, infer_forward(x, grid, mode, padding, align).shape);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, const std::string&, const std::string&, bool)>
    grid_sample_backward_input_op{{
        .schema = "grid_sample_backward_input(Tensor g, Tensor grid, int[] size, str mode, str padding_mode, bool "
                  "align_corners) -> Tensor",
        .shard = "n ...!, n ...! -> n ...!",
        .internal = true,
        .doc = "The gradient of grid_sample for its input, whose spatial sizes are `size`: each element of g added to "
               "the elements that its position read, by their weights, in an order that is always the same.",
        .infer =
            [](const Tensor& g, const Tensor& grid, const Dims& size, const std::string& mode,
               const std::string& padding, bool align) {
              backward_call("grid_sample_backward_input", g, grid, size, mode, padding, align);
              return like(g).with_shape(image_shape(g.shape(), size));
            },
        .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& g, const Tensor& grid, const Dims& size,
                                     const std::string& mode, const std::string& padding, bool align) {
          if (gx.numel() == 0) return;
          const Call c = backward_call("grid_sample_backward_input", g, grid, size, mode, padding, align);
          const Tensor from = g.contiguous(), at = grid.contiguous(), to = dense(gx);
          if constexpr (on.cuda) {
            const Shape reads{c.batch, c.points * c.taps()};
            const DType wide = g.dtype() == DType::f64 ? DType::f64 : DType::f32;
            const Tensor places = empty(TensorMeta{reads, DType::i64, g.device(), std::nullopt}),
                         weights = empty(TensorMeta{reads, wide, g.device(), std::nullopt});
            grid_sample_reads_cuda(c, at.raw_data(), static_cast<int64_t*>(places.raw_data()), weights.raw_data());
            const auto [sorted, order] = sort(places);
            grid_sample_gather_cuda(c, from.raw_data(), static_cast<const int64_t*>(sorted.raw_data()),
                                    static_cast<const int64_t*>(order.raw_data()), weights.raw_data(), to.raw_data());
          } else {
            cpu::grid_sample_backward_input(c, from.raw_data(), at.raw_data(), to.raw_data());
          }
          put(gx, to);
        }),
        .composed =
            [](const Tensor& g, const Tensor& grid, const Dims& size, const std::string& mode,
               const std::string& padding, bool align) {
              const Call c = backward_call("grid_sample_backward_input", g, grid, size, mode, padding, align);
              return sampling::composed_input(c, g, grid, image_shape(g.shape(), size));
            },
        .cost = [](const Tensor& g, const Tensor& grid, const Dims& size, const std::string&, const std::string&,
                   bool) { return sampling_cost(g, grid, image_shape(g.shape(), size).product()); },
        .samples =
            [](Samples& s) {
              every_option([&](const char* mode, const char* padding, bool align) {
                s.add(s.tensor({2, 10, 2, 3}), positions(s, {2, 2, 3, 2}, {3, 5}, align), Dims{3, 5}, mode, padding,
                      align)
                    .named(label(mode, padding, align));
              });
              s.add(s.tensor({1, 2, 2, 1, 3}), positions(s, {1, 2, 1, 3, 3}, {2, 4, 3}, false), Dims{2, 4, 3},
                    "bilinear", "reflection", false)
                  .named("three dimensions");
              s.invalid<ShapeError>("g is", s.tensor({1, 2, 3, 3}), s.tensor({1, 2, 2, 2}), Dims{3, 3}, "bilinear",
                                    "zeros", false);
              if (s.benchmarking())
                s.bench(s.tensor({8, 64, 128, 128}), s.uniform({8, 128, 128, 2}, -1, 1), Dims{128, 128}, "bilinear",
                        "zeros", false);
            },
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&, const std::string&, bool)>
    grid_sample_backward_grid_op{{
        .schema = "grid_sample_backward_grid(Tensor g, Tensor x, Tensor grid, str mode, str padding_mode, bool "
                  "align_corners) -> Tensor",
        .shard = "n ...!, n ...!, n ...! -> n ...!",
        .internal = true,
        .doc = "The gradient of grid_sample for its positions; 0 for mode nearest, and where a position was moved to "
               "the border.",
        .infer =
            [](const Tensor& g, const Tensor& x, const Tensor& grid, const std::string& mode,
               const std::string& padding, bool align) {
              constexpr std::string_view op = "grid_sample_backward_grid";
              check<ShapeError>(x.dim() == g.dim() && x.dim() >= 2 && x.size(0) == g.size(0) && x.size(1) == g.size(1),
                                op, "g is ", g, ", x is ", x);
              check<DTypeError>(x.dtype() == g.dtype(), op, "g is ", g, ", x is ", x);
              backward_call(op, g, grid, spatial_size(x.shape()), mode, padding, align);
              return like(grid);
            },
        .kernels = on_each_device([](auto on, Tensor& gg, const Tensor& g, const Tensor& x, const Tensor& grid,
                                     const std::string& mode, const std::string& padding, bool align) {
          if (gg.numel() == 0) return;
          const Call c =
              backward_call("grid_sample_backward_grid", g, grid, spatial_size(x.shape()), mode, padding, align);
          const Tensor from = g.contiguous(), read = x.contiguous(), at = grid.contiguous(), to = dense(gg);
          if constexpr (on.cuda)
            grid_sample_backward_grid_cuda(c, from.raw_data(), read.raw_data(), at.raw_data(), to.raw_data());
          else
            cpu::grid_sample_backward_grid(c, from.raw_data(), read.raw_data(), at.raw_data(), to.raw_data());
          put(gg, to);
        }),
        .composed =
            [](const Tensor& g, const Tensor& x, const Tensor& grid, const std::string& mode,
               const std::string& padding, bool align) {
              const Call c =
                  backward_call("grid_sample_backward_grid", g, grid, spatial_size(x.shape()), mode, padding, align);
              return sampling::composed_grid(c, g, x, grid);
            },
        .cost = [](const Tensor& g, const Tensor& x, const Tensor& grid, const std::string&, const std::string&,
                   bool) { return sampling_cost(x, grid, g.numel() + grid.numel()); },
        .samples =
            [](Samples& s) {
              every_option([&](const char* mode, const char* padding, bool align) {
                Sample& sample = s.add(s.tensor({2, 3, 2, 3}), s.tensor({2, 3, 3, 5}),
                                       positions(s, {2, 2, 3, 2}, {3, 5}, align), mode, padding, align)
                                     .named(label(mode, padding, align));
                if (std::string_view(mode) == "nearest") sample.not_differentiable();  // 0 whatever comes
              });
              s.add(s.tensor({1, 2, 2, 1, 3}), s.tensor({1, 2, 2, 4, 3}),
                    positions(s, {1, 2, 1, 3, 3}, {2, 4, 3}, false), "bilinear", "reflection", false)
                  .named("three dimensions");
              s.invalid<ShapeError>("x is", s.tensor({1, 2, 2, 2}), s.tensor({1, 3, 3, 3}), s.tensor({1, 2, 2, 2}),
                                    "bilinear", "zeros", false);
              if (s.benchmarking())
                s.bench(s.tensor({8, 64, 128, 128}), s.tensor({8, 64, 128, 128}), s.uniform({8, 128, 128, 2}, -1, 1),
                        "bilinear", "zeros", false);
            },
    }};

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding_mode,
                   bool align_corners) {
  return grid_sample_op(x, grid, mode, padding_mode, align_corners);
}
Tensor grid_sample_backward_input(const Tensor& g, const Tensor& grid, const Dims& size, const std::string& mode,
                                  const std::string& padding_mode, bool align_corners) {
  return grid_sample_backward_input_op(g, grid, size, mode, padding_mode, align_corners);
}
Tensor grid_sample_backward_grid(const Tensor& g, const Tensor& x, const Tensor& grid, const std::string& mode,
                                 const std::string& padding_mode, bool align_corners) {
  return grid_sample_backward_grid_op(g, x, grid, mode, padding_mode, align_corners);
}

}  // namespace strata
