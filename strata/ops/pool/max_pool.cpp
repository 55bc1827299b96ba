#include <limits>
#include "strata/ops/pool/integer_pool_kernel.h"
#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

using Pair = std::tuple<Tensor, Tensor>;

std::array<TensorMeta, 2> max_pool_infer(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                                         const Dims& dilation, bool ceil_mode) {
  check_floating("max_pool", x);
  const Dims in = spatial_of("max_pool", x, kernel.size());
  check_window("max_pool", kernel, stride, padding, dilation);
  const TensorMeta y = pooled_meta(x, pooled_sizes("max_pool", in, kernel, stride, padding, dilation, ceil_mode));
  return {y, y.with_dtype(DType::i64)};
}

std::array<TensorMeta, 2> adaptive_max_infer(const Tensor& x, const Dims& output_size) {
  check_floating("adaptive_max_pool", x);
  for (int64_t v : spatial_of("adaptive_max_pool", x, output_size.size()))
    check<ShapeError>(v > 0, "adaptive_max_pool", "the spatial size of ", x, " is empty");
  check_list("adaptive_max_pool", output_size, output_size.size(), 1, "output_size");
  const TensorMeta y = pooled_meta(x, output_size);
  return {y, y.with_dtype(DType::i64)};
}

template <class On>
void max_into(On on, Tensor& values, Tensor& positions, const Tensor& x, int64_t spatial, const Axes& t) {
  if (values.numel() == 0) return;  // its planes may still be too large to describe
  if constexpr (on.cuda) {
    if (both_last(x, values, spatial) && lies_last(positions, spatial) &&
        window_max_last_cuda(t, x.shape()[0], x.shape()[1], x.dtype(), x.raw_data(), values.raw_data(),
                             static_cast<int64_t*>(positions.raw_data())))
      return;
  } else {
    if (both_last(x, values, spatial) && lies_last(positions, spatial) &&
        cpu::window_max_last(t, x.shape()[0], x.shape()[1], x.dtype(), x.raw_data(), values.raw_data(),
                             static_cast<int64_t*>(positions.raw_data())))
      return;
  }
  const Tensor from = x.contiguous();
  Tensor v = values.is_contiguous() ? values : empty(values.meta()),
         p = positions.is_contiguous() ? positions : empty(positions.meta());
  int64_t* const at = static_cast<int64_t*>(p.raw_data());
  if constexpr (on.cuda)
    window_max_cuda(t, planes_of(x, spatial), x.dtype(), from.raw_data(), v.raw_data(), at);
  else
    cpu::window_max(t, planes_of(x, spatial), x.dtype(), from.raw_data(), v.raw_data(), at);
  if (!v.same_as(values)) values.copy_(v);
  if (!p.same_as(positions)) positions.copy_(p);
}

// The largest of the inputs that inside(dimension, output, input) accepts.
template <class F>
Pair max_reference(const Tensor& x, const std::array<TensorMeta, 2>& metas, int64_t spatial, F&& inside) {
  const Tensor from = x.contiguous(), values = empty(metas[0].with_shape(metas[0].shape)),
               positions = empty(metas[1].with_shape(metas[1].shape));
  // Depth, height and width; those that are missing come first.
  const auto sizes = [&](const Shape& s) {
    std::array<int64_t, 3> r{1, 1, 1};
    for (int64_t d = 0; d < spatial; ++d) r[3 - spatial + d] = s[s.size() - spatial + d];
    return r;
  };
  const auto in = sizes(x.shape()), out = sizes(metas[0].shape);
  const int64_t in_plane = in[0] * in[1] * in[2], out_plane = out[0] * out[1] * out[2];
  for (int64_t i = 0; i < values.numel(); ++i) {
    double best = -std::numeric_limits<double>::infinity();
    int64_t at = -1;
    for (int64_t j = 0; j < in_plane; ++j) {
      const std::array<int64_t, 3> o{i / (out[1] * out[2]) % out[0], i / out[2] % out[1], i % out[2]},
          e{j / (in[1] * in[2]), j / in[2] % in[1], j % in[2]};
      bool has = true;
      for (int64_t d = 0; d < spatial; ++d) has = has && inside(d, o[3 - spatial + d], e[3 - spatial + d]);
      if (!has) continue;
      const double v = from.data<double>()[i / out_plane * in_plane + j];
      if (at < 0 || v > best) best = v, at = j;
    }
    values.data<double>()[i] = best;
    positions.data<int64_t>()[i] = at;
  }
  return {values, positions};
}

Pair windows_reference(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                       const Dims& dilation, bool ceil_mode) {
  return max_reference(x, max_pool_infer(x, kernel, stride, padding, dilation, ceil_mode), kernel.size(),
                       [&](int64_t d, int64_t o, int64_t i) {
                         const int64_t from_start = i - (o * stride[d] - padding[d]);
                         return from_start >= 0 && from_start % dilation[d] == 0 &&
                                from_start / dilation[d] < kernel[d];
                       });
}
Pair adaptive_reference(const Tensor& x, const Dims& output_size) {
  const Dims in = spatial_of("adaptive_max_pool", x, output_size.size());
  return max_reference(x, adaptive_max_infer(x, output_size), output_size.size(), [&](int64_t d, int64_t o, int64_t i) {
    return adaptive_weight(o, i, in[d], output_size[d]) > 0;
  });
}

const Op<Pair(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool)> max_pool_op{{
    .schema = "max_pool(Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode=false) -> "
              "(Tensor values, Tensor indices)",
    .shard = "n ...! -> n ...!, n ...!",
    .doc =
        "The largest element of each window over the last one to three dimensions (as many as kernel has entries), and "
        "its "
        "position in the plane, row-major. Padding never wins; NaN wins; of equal elements the first. max_pool1d, "
        "max_pool2d and max_pool3d are the friendlier forms.",
    .infer = max_pool_infer,
    .kernels = on_each_device([](auto on, Tensor& values, Tensor& positions, const Tensor& x, const Dims& kernel,
                                 const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
      max_into(on, values, positions, x, kernel.size(), max_axes(x, kernel, stride, padding, dilation, ceil_mode));
    }),
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
           const Dims& dilation, bool) {
          b.set(0, max_pool_backward(b.gy(0), b.y(1), spatial_of("max_pool", x, kernel.size()), kernel, stride, padding,
                                     dilation));
        },
    .cost =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
           bool ceil_mode) {
          return move_cost(x, max_pool_infer(x, kernel, stride, padding, dilation, ceil_mode)[0].shape,
                           window_size(kernel));
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 6, 7}), Dims{2, 3}, Dims{2, 2}, Dims{0, 1}, Dims{1, 1});
          s.add(s.distinct({2, 3, 7}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, true).named("one dimension, dilated, ceil");
          s.add(s.distinct({2, 6, 7, 8}).permute({0, 3, 1, 2}), Dims{2, 3}, Dims{2, 2}, Dims{0, 1}, Dims{1, 1})
              .named("channels innermost");
          s.add(transpose(s.distinct({1, 5, 2, 5}), 1, 2), Dims{3, 3}, Dims{1, 1}, Dims{1, 1}, Dims{1, 1})
              .named("overlapping, strided");
          s.add(s.tensor({0, 3, 4, 4}), Dims{2, 2}, Dims{2, 2}, Dims{0, 0}, Dims{1, 1}).named("empty batch");
          s.add(s.distinct({2, 2, 5, 4, 3}), Dims{3, 2, 2}, Dims{2, 1, 2}, Dims{1, 0, 1}, Dims{1, 2, 1}, true)
              .named("three dimensions");
          s.invalid<ShapeError>("does not fit", s.tensor({1, 2, 2}), Dims{3}, Dims{1}, Dims{0}, Dims{1});
          s.invalid<ValueError>("half the kernel", s.tensor({1, 2, 4}), Dims{2}, Dims{1}, Dims{2}, Dims{1});
          s.invalid<ValueError>("stride", s.tensor({1, 2, 4}), Dims{2}, Dims{0}, Dims{0}, Dims{1});
          s.invalid<ShapeError>("dimensions", s.tensor({4}), Dims{2}, Dims{1}, Dims{0}, Dims{1});
          s.invalid<ValueError>("one to three", s.tensor({1, 1, 2, 2, 2, 2}), Dims{1, 1, 1, 1}, Dims{1, 1, 1, 1},
                                Dims{0, 0, 0, 0}, Dims{1, 1, 1, 1});
          if (s.benchmarking())
            s.bench(s.tensor({8, 64, 16, 56, 56}), Dims{3, 3, 3}, Dims{2, 2, 2}, Dims{1, 1, 1}, Dims{1, 1, 1});
        },
    .reference = windows_reference,
}};

const Op<Pair(const Tensor&, const Dims&)> adaptive_max_pool_op{{
    .schema = "adaptive_max_pool(Tensor x, int[] output_size) -> (Tensor values, Tensor indices)",
    .shard = "n ...! -> n ...!, n ...!",
    .doc = "The largest elements of windows that cover the last one to three dimensions so that the result has "
           "output_size, and "
           "their positions in the plane. Output i covers inputs floor(i in / out) to ceil((i + 1) in / out) - 1.",
    .infer = adaptive_max_infer,
    .kernels = on_each_device([](auto on, Tensor& values, Tensor& positions, const Tensor& x, const Dims& output_size) {
      const Dims in = spatial_of("adaptive_max_pool", x, output_size.size());
      max_into(on, values, positions, x, output_size.size(),
               axes_of(output_size.size(), [&](int64_t d) { return adaptive_axis(in[d], output_size[d]); }));
    }),
    .saves = "indices",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& output_size) {
          b.set(0, plane_scatter(b.gy(0), b.y(1), spatial_of("adaptive_max_pool", x, output_size.size())));
        },
    .cost = [](const Tensor& x,
               const Dims& output_size) { return move_cost(x, with_spatial(x.shape(), output_size), 1); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 5, 7}), Dims{2, 3});
          s.add(s.distinct({2, 3, 5}), Dims{8}).named("larger");
          s.add(s.distinct({2, 4, 3, 5}), Dims{2, 3, 1}).named("three dimensions");
          s.invalid<ValueError>("output_size", s.tensor({2, 3, 5}), Dims{0});
        },
    .reference = adaptive_reference,
}};

TensorMeta max_backward_infer(const Tensor& g, const Tensor& positions, const Dims& size, const Dims& kernel,
                              const Dims& stride, const Dims& padding, const Dims& dilation) {
  constexpr std::string_view op = "max_pool_backward";
  check_floating(op, g);
  const Dims out = spatial_of(op, g, kernel.size());
  check_window(op, kernel, stride, padding, dilation);
  check_list(op, size, kernel.size(), 1, "size");
  check<ShapeError>(g.shape() == positions.shape(), op, "g is ", g, " but positions are ", positions);
  check<DTypeError>(positions.dtype() == DType::i64, op, "positions must be i64, are ", positions);
  for (int d = 0; d < size.size(); ++d) {
    const auto pooled = [&](bool up) {
      return pooled_size(size[d], kernel[d], stride[d], padding[d], dilation[d], up);
    };
    check<ShapeError>(out[d] == pooled(false) || out[d] == pooled(true), op, "an input of ", size,
                      " does not give a result of ", out);
  }
  return pooled_meta(g, size);
}

Tensor scattered(const Tensor& y, const Tensor& positions, const Shape& result, int64_t spatial) {
  const Tensor x = empty(like(y).with_shape(result)), from = y.contiguous(), at = positions.contiguous();
  std::fill_n(x.data<double>(), x.numel(), 0.0);
  int64_t in = 1;
  for (int64_t d = result.size() - spatial; d < result.size(); ++d) in *= result[d];
  const int64_t planes = planes_of(y, spatial), out = y.numel() / std::max<int64_t>(1, planes);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t p = at.data<int64_t>()[i];
    if (p >= 0 && p < in) x.data<double>()[i / out * in + p] += from.data<double>()[i];
  }
  return x;
}

// plane_scatter on the processor where all channels lie innermost.
bool scatter_last(Tensor& x, const Tensor& y, const Tensor& positions, int64_t spatial) {
  return x.device().is_cpu() && both_last(y, x, spatial) && lies_last(positions, spatial) &&
         cpu::plane_scatter_last(x.shape()[0], x.shape()[1], x.numel() / (x.shape()[0] * x.shape()[1]),
                                 y.numel() / (y.shape()[0] * y.shape()[1]), y.dtype(), y.raw_data(),
                                 static_cast<const int64_t*>(positions.raw_data()), x.raw_data());
}

// The elements of x's planes of `spatial` dimensions that `positions` names.
Tensor at_positions(const Tensor& x, const Tensor& positions, int64_t spatial) {
  return plane_gather(flatten(x, -spatial, -1), flatten(positions, -spatial, -1)).reshape(positions.shape());
}

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, const Dims&)>
    max_pool_backward_op{{
        .schema = "max_pool_backward(Tensor g, Tensor positions, int[] size, int[] kernel, int[] stride, int[] "
                  "padding, int[] dilation) -> Tensor",
        .shard = "n ...!, n ...! -> n ...!",
        .internal = true,
        .doc = "Adds each element of g to the input that won its window, by the positions that max_pool gave for an "
               "input of spatial size `size`: the gradient of max_pool. Positions outside their window, which "
               "max_pool does not give, may be left out.",
        .infer = max_backward_infer,
        .kernels =
            on_each_device([](auto on, Tensor& x, const Tensor& g, const Tensor& positions, const Dims& size,
                              const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation) {
              const int64_t spatial = kernel.size();
              if constexpr (on.cuda) {
                const Dims out = spatial_of("max_pool_backward", g, spatial);
                const Axes axes = axes_of(spatial, [&](int64_t d) {
                  Axis a = pool_axis(size[d], kernel[d], stride[d], padding[d], dilation[d], false, false, false);
                  a.out = out[d];
                  return a;
                });
                if (both_last(g, x, spatial) && lies_last(positions, spatial) &&
                    max_backward_last_cuda(axes, x.shape()[0], x.shape()[1], x.dtype(), g.raw_data(),
                                           static_cast<const int64_t*>(positions.raw_data()), x.raw_data()))
                  return;
                const Tensor at = positions.contiguous();
                dense(x, g, [&](const Tensor& from, Tensor& to) {
                  max_backward_cuda(axes, planes_of(g, spatial), g.dtype(), from.raw_data(),
                                    static_cast<const int64_t*>(at.raw_data()), to.raw_data());
                });
              } else {
                if (scatter_last(x, g, positions, spatial)) return;
                const Tensor at = positions.contiguous();
                dense(x, g, [&](const Tensor& from, Tensor& to) {
                  const int64_t planes = planes_of(g, spatial);
                  cpu::plane_scatter(planes, size.product(), planes > 0 ? g.numel() / planes : 0, g.dtype(),
                                     from.raw_data(), static_cast<const int64_t*>(at.raw_data()), to.raw_data());
                });
              }
            }),
        .saves = "positions",
        .backward =
            [](Backward& b, const Tensor&, const Tensor& positions, const Dims& size, const Dims&, const Dims&,
               const Dims&, const Dims&) {
              if (b.needs(0)) b.set(0, at_positions(b.gy(), positions, size.size()));
            },
        .cost =
            [](const Tensor& g, const Tensor& positions, const Dims& size, const Dims&, const Dims&, const Dims&,
               const Dims&) {
              Cost c = move_cost(g, with_spatial(g.shape(), size), 1);
              c.bytes += static_cast<double>(positions.nbytes());
              return c;
            },
        .samples =
            [](Samples& s) {
              const auto add = [&](const Shape& shape, const Dims& size, const Dims& kernel, const Dims& stride,
                                   const Dims& padding, const Dims& dilation, bool ceil_mode) -> Sample& {
                const Tensor at = std::get<1>(
                    max_pool(Samples(DType::f32).distinct(shape), kernel, stride, padding, dilation, ceil_mode));
                return s.add(s.tensor(at.shape()), at, size, kernel, stride, padding, dilation);
              };
              add({2, 3, 6, 7}, {6, 7}, {2, 3}, {2, 2}, {0, 1}, {1, 1}, false);
              add({2, 3, 9}, {9}, {3}, {1}, {1}, {2}, false).named("one dimension, dilated");
              add({2, 5, 4, 3}, {5, 4, 3}, {3, 2, 2}, {2, 1, 2}, {1, 0, 1}, {1, 2, 1}, true).named("three dimensions");
              s.invalid<ShapeError>("does not give", s.tensor({2, 5}), s.integers({2, 5}, 0, 3), Dims{20}, Dims{3},
                                    Dims{2}, Dims{1}, Dims{1});
              s.invalid<ShapeError>("positions", s.tensor({2, 2}), s.integers({2, 5}, 0, 3), Dims{4}, Dims{2}, Dims{2},
                                    Dims{0}, Dims{1});
              if (s.benchmarking()) {
                const Tensor at = std::get<1>(max_pool(Samples(DType::f32).tensor({8, 64, 16, 56, 56}), {3, 3, 3},
                                                       {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, false));
                s.bench(s.tensor(at.shape()), at, Dims{16, 56, 56}, Dims{3, 3, 3}, Dims{2, 2, 2}, Dims{1, 1, 1},
                        Dims{1, 1, 1});
              }
            },
        .reference =
            [](const Tensor& g, const Tensor& positions, const Dims& size, const Dims& kernel, const Dims& stride,
               const Dims& padding, const Dims& dilation) {
              return scattered(g, positions,
                               max_backward_infer(g, positions, size, kernel, stride, padding, dilation).shape,
                               size.size());
            },
    }};

TensorMeta scatter_infer(const Tensor& y, const Tensor& positions, const Dims& size) {
  check_floating("plane_scatter", y);
  spatial_of("plane_scatter", y, size.size());
  check_list("plane_scatter", size, size.size(), 0, "size");
  check<ShapeError>(y.shape() == positions.shape(), "plane_scatter", "y is ", y, " but positions are ", positions);
  check<DTypeError>(positions.dtype() == DType::i64, "plane_scatter", "positions must be i64, are ", positions);
  return pooled_meta(y, size);
}

const Op<Tensor(const Tensor&, const Tensor&, const Dims&)> plane_scatter_op{{
    .schema = "plane_scatter(Tensor y, Tensor positions, int[] size) -> Tensor",
    .shard = "n ...!, n ...! -> n ...!",
    .doc = "Adds each element of y into zeros whose last dimensions are `size`, at its row-major position in the "
           "plane; positions "
           "outside the plane are skipped. The gradient of adaptive_max_pool.",
    .infer = scatter_infer,
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& y, const Tensor& positions, const Dims& size) {
      if (scatter_last(x, y, positions, size.size())) return;
      const Tensor at = positions.contiguous();
      dense(x, y, [&](const Tensor& from, Tensor& to) {
        const int64_t planes = planes_of(y, size.size()), in = size.product(),
                      out = planes > 0 ? y.numel() / planes : 0;
        const auto* p = static_cast<const int64_t*>(at.raw_data());
        if constexpr (on.cuda)
          plane_scatter_cuda(planes, in, out, y.dtype(), from.raw_data(), p, to.raw_data());
        else
          cpu::plane_scatter(planes, in, out, y.dtype(), from.raw_data(), p, to.raw_data());
      });
    }),
    .saves = "positions",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& positions, const Dims& size) {
          // A plane's positions count over `size`, and plane_gather takes planes from the rank of positions.
          if (b.needs(0)) b.set(0, at_positions(b.gy(), positions, size.size()));
        },
    .cost =
        [](const Tensor& y, const Tensor& positions, const Dims& size) {
          Cost c = move_cost(y, with_spatial(y.shape(), size), 1);
          c.bytes += static_cast<double>(positions.nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 2, 2}), s.integers({2, 3, 2, 2}, 0, 12), Dims{3, 4});
          s.add(s.tensor({2, 3, 4}), s.integers({2, 3, 4}, 0, 3), Dims{3}).named("repeated positions");
          s.add(s.tensor({2, 4}), s.integers({2, 4}, -1, 9), Dims{6}).named("positions outside");
          s.add(s.tensor({2, 3, 2, 2}), s.integers({2, 3, 2, 2}, 0, 24), Dims{2, 3, 4}).named("three dimensions");
          s.add(s.tensor({2, 3, 20, 20}), s.integers({2, 3, 20, 20}, -5, 1600), Dims{40, 40})
              .named("large, repeated positions");
          s.add(s.tensor({1, 1, 10, 10}), s.integers({1, 1, 10, 10}, 0, 2600), Dims{50, 50}).named("a plane in parts");
          s.invalid<ShapeError>("positions", s.tensor({2, 3, 4}), s.integers({2, 3, 3}, 0, 3), Dims{3});
        },
    .reference =
        [](const Tensor& y, const Tensor& positions, const Dims& size) {
          return scattered(y, positions, scatter_infer(y, positions, size).shape, size.size());
        },
}};

TensorMeta gather_infer(const Tensor& x, const Tensor& positions) {
  check_floating("plane_gather", x);
  check<ShapeError>(x.dim() == positions.dim() && x.dim() >= 2, "plane_gather", "x is ", x, " but positions are ",
                    positions);
  for (int64_t d = 0; d + 1 < x.dim(); ++d)
    check<ShapeError>(x.shape()[d] == positions.shape()[d], "plane_gather", "x is ", x, " but positions are ",
                      positions);
  check<DTypeError>(positions.dtype() == DType::i64, "plane_gather", "positions must be i64, are ", positions);
  return like(x).with_shape(positions.shape());
}

const Op<Tensor(const Tensor&, const Tensor&)> plane_gather_op{{
    .schema = "plane_gather(Tensor x, Tensor positions) -> Tensor",
    .shard = "n ...!, n ...! -> n ...!",
    .doc = "y[.., i] = x[.., positions[.., i]], and 0 for positions outside x's last dimension. The gradient of "
           "plane_scatter.",
    .infer = gather_infer,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& positions) {
      const Tensor at = positions.contiguous();
      dense(y, x, [&](const Tensor& from, Tensor& to) {
        const int64_t planes = planes_of(x, 1), in = x.shape().back(), out = positions.shape().back();
        const auto* p = static_cast<const int64_t*>(at.raw_data());
        if constexpr (on.cuda)
          plane_gather_cuda(planes, in, out, x.dtype(), from.raw_data(), p, to.raw_data());
        else
          cpu::plane_gather(planes, in, out, x.dtype(), from.raw_data(), p, to.raw_data());
      });
    }),
    .saves = "positions",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& positions) {
          if (b.needs(0)) b.set(0, plane_scatter(b.gy(), positions, {x.shape().back()}));
        },
    .cost =
        [](const Tensor& x, const Tensor& positions) {
          return Cost{0, static_cast<double>(positions.numel() * (8 + 2 * size_of(x.dtype())))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 5}), s.integers({2, 3, 4}, 0, 5));
          s.add(s.tensor({2, 5}), s.integers({2, 4}, -2, 8)).named("positions outside");
          s.invalid<ShapeError>("positions", s.tensor({2, 3, 5}), s.integers({2, 2, 4}, 0, 5));
        },
    .reference =
        [](const Tensor& x, const Tensor& positions) {
          const Tensor y = empty(gather_infer(x, positions)), from = x.contiguous(), at = positions.contiguous();
          const int64_t in = x.shape().back(), out = positions.shape().back();
          for (int64_t i = 0; i < y.numel(); ++i) {
            const int64_t p = at.data<int64_t>()[i];
            y.data<double>()[i] = p >= 0 && p < in ? from.data<double>()[i / out * in + p] : 0;
          }
          return y;
        },
}};

// ---- the friendlier forms -------------------------------------------------------------------------------------------

Tensor max_pool_nd(std::string_view op, int spatial, const Tensor& x, const Dims& kernel, const Dims& stride,
                   const Dims& padding, const Dims& dilation, bool ceil_mode) {
  check_rank(op, x, spatial);
  const Dims k = spread(kernel, spatial);
  check(k.size() == spatial, op, "kernel ", kernel, " needs ", spatial, " entries");
  const Dims s = stride.empty() ? k : spread(stride, spatial), p = spread(padding, spatial);
  if (!is_floating(x.dtype())) return max_pool_integers(op, x, k, s, p, spread(dilation, spatial), ceil_mode);
  if (!x.requires_grad() || !grad_enabled()) return max_pool_values(x, k, s, p, spread(dilation, spatial), ceil_mode);
  return std::get<0>(max_pool(x, k, s, p, spread(dilation, spatial), ceil_mode));
}
template <int Spatial>
Tensor max_by_hand(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                   bool ceil_mode) {
  return std::get<0>(windows_reference(x, spread(kernel, Spatial), spread(stride.empty() ? kernel : stride, Spatial),
                                       spread(padding, Spatial), spread(dilation, Spatial), ceil_mode));
}
template <int Spatial>
Tensor adaptive_by_hand(const Tensor& x, const Dims& output_size) {
  return std::get<0>(adaptive_reference(x, spread(output_size, Spatial)));
}
using MaxSignature = Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool);
using SizeSignature = Tensor(const Tensor&, const Dims&);

const Op<MaxSignature> max_pool1d_op{{
    .schema = "max_pool1d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], int[] dilation=[1], bool "
              "ceil_mode=false) -> Tensor",
    .doc = "The largest element of each window along the last dimension of [n, c, length] or [c, length]. The stride "
           "is the kernel's "
           "size unless given; padding, at most half the kernel, never wins.",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
           bool ceil_mode) { return max_pool_nd("max_pool1d", 1, x, kernel, stride, padding, dilation, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 7}), Dims{2});
          s.add(s.distinct({3, 7}), Dims{3}, Dims{1}, Dims{1}, Dims{2}, true);
          s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{2});
        },
    .reference = max_by_hand<1>,
}};

const Op<MaxSignature> max_pool2d_op{{
    .schema = "max_pool2d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], int[] dilation=[1], bool "
              "ceil_mode=false) -> Tensor",
    .doc = "The largest element of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride "
           "is the kernel's "
           "size unless given; padding, at most half the kernel, never wins. A list with one entry serves both "
           "dimensions.",
    .example = "assert(max_pool2d(ones({2, 3, 8, 6}), {2}).shape() == Shape({2, 3, 4, 3}));",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
           bool ceil_mode) { return max_pool_nd("max_pool2d", 2, x, kernel, stride, padding, dilation, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 6, 6}), Dims{2});
          s.add(s.distinct({3, 7, 6}), Dims{3, 2}, Dims{2}, Dims{1}, Dims{1}, true);
          s.invalid<ShapeError>("dimensions", s.tensor({7, 7}), Dims{2});
          s.invalid<ValueError>("entries", s.tensor({1, 1, 7, 7}), Dims{2, 2, 2});
        },
    .reference = max_by_hand<2>,
}};

const Op<MaxSignature> max_pool3d_op{{
    .schema = "max_pool3d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], int[] dilation=[1], bool "
              "ceil_mode=false) -> Tensor",
    .doc = "The largest element of each window over the last three dimensions of [n, c, d, h, w] or [c, d, h, w]. The "
           "stride is the kernel's size unless given; padding, at most half the kernel, never wins. A list with one "
           "entry serves all three dimensions.",
    .example = "assert(max_pool3d(ones({2, 3, 4, 8, 6}), {2}).shape() == Shape({2, 3, 2, 4, 3}));",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
           bool ceil_mode) { return max_pool_nd("max_pool3d", 3, x, kernel, stride, padding, dilation, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 2, 4, 4, 4}), Dims{2});
          s.add(s.distinct({2, 4, 5, 3}), Dims{3, 2, 2}, Dims{2, 1, 1}, Dims{1, 0, 1}, Dims{1}, true);
          s.invalid<ShapeError>("dimensions", s.tensor({4, 4, 4}), Dims{2});
          s.invalid<ValueError>("entries", s.tensor({1, 1, 4, 4, 4}), Dims{2, 2});
        },
    .reference = max_by_hand<3>,
}};

const Op<SizeSignature> adaptive_max_pool1d_op{{
    .schema = "adaptive_max_pool1d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Largest elements along the last dimension of [n, c, length] or [c, length], of windows such that the "
           "result has output_size.",
    .composed =
        [](const Tensor& x, const Dims& out) {
          return std::get<0>(adaptive_max_pool(x, adaptive_size("adaptive_max_pool1d", 1, x, out)));
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 7}), Dims{3});
          s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{3});
        },
    .reference = adaptive_by_hand<1>,
}};

const Op<SizeSignature> adaptive_max_pool2d_op{{
    .schema = "adaptive_max_pool2d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Largest elements over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the "
           "result has output_size.",
    .composed =
        [](const Tensor& x, const Dims& out) {
          return std::get<0>(adaptive_max_pool(x, adaptive_size("adaptive_max_pool2d", 2, x, out)));
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 7, 5}), Dims{3, 2});
          s.invalid<ShapeError>("dimensions", s.tensor({7, 5}), Dims{3});
        },
    .reference = adaptive_by_hand<2>,
}};

const Op<SizeSignature> adaptive_max_pool3d_op{{
    .schema = "adaptive_max_pool3d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Largest elements over the last three dimensions of [n, c, d, h, w] or [c, d, h, w], of windows such that "
           "the result has output_size.",
    .composed =
        [](const Tensor& x, const Dims& out) {
          return std::get<0>(adaptive_max_pool(x, adaptive_size("adaptive_max_pool3d", 3, x, out)));
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 2, 3, 5, 4}), Dims{2, 3, 2});
          s.invalid<ShapeError>("dimensions", s.tensor({7, 5, 3}), Dims{3});
        },
    .reference = adaptive_by_hand<3>,
}};

}  // namespace

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                                    const Dims& dilation, bool ceil_mode) {
  return max_pool_op(x, kernel, stride, padding, dilation, ceil_mode);
}
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool_op(x, output_size);
}
Tensor max_pool_backward(const Tensor& g, const Tensor& positions, const Dims& size, const Dims& kernel,
                         const Dims& stride, const Dims& padding, const Dims& dilation) {
  return max_pool_backward_op(g, positions, size, kernel, stride, padding, dilation);
}
Tensor plane_scatter(const Tensor& y, const Tensor& positions, const Dims& size) {
  return plane_scatter_op(y, positions, size);
}
Tensor plane_gather(const Tensor& x, const Tensor& positions) {
  return plane_gather_op(x, positions);
}
Tensor max_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                  bool ceil_mode) {
  return max_pool1d_op(x, kernel, stride, padding, dilation, ceil_mode);
}
Tensor max_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                  bool ceil_mode) {
  return max_pool2d_op(x, kernel, stride, padding, dilation, ceil_mode);
}
Tensor max_pool3d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                  bool ceil_mode) {
  return max_pool3d_op(x, kernel, stride, padding, dilation, ceil_mode);
}
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool1d_op(x, output_size);
}
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool2d_op(x, output_size);
}
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool3d_op(x, output_size);
}

}  // namespace strata
