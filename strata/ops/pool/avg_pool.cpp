#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/pool/integer_pool_kernel.h"
#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

// Of dimension d; the first one has the divisor, where there is one (not 0).
double mean_weight(int64_t d, int64_t i, int64_t j, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                   bool count_padding, int64_t divisor) {
  const int64_t low = i * stride - padding, high = std::min(low + kernel, in + padding);
  if (j < low || j >= high) return 0;
  if (divisor != 0) return d == 0 ? 1.0 / static_cast<double>(divisor) : 1.0;
  return 1.0 / static_cast<double>(count_padding ? high - low : std::min(high, in) - std::max<int64_t>(low, 0));
}

Axes mean_axes(const Dims& in, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
               bool count_padding, int64_t divisor) {
  return axes_of(kernel.size(), [&](int64_t d) {
    Axis a = pool_axis(in[d], kernel[d], stride[d], padding[d], 1, ceil_mode, divisor == 0, count_padding);
    if (divisor != 0 && d == 0) a.scale = static_cast<double>(divisor);
    return a;
  });
}

TensorMeta avg_pool_infer(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                          bool, int64_t) {
  check_floating("avg_pool", x);
  const Dims in = spatial_of("avg_pool", x, kernel.size()), ones = Dims::filled(kernel.size(), 1);
  check_window("avg_pool", kernel, stride, padding, ones);
  return pooled_meta(x, pooled_sizes("avg_pool", in, kernel, stride, padding, ones, ceil_mode));
}

TensorMeta avg_pool_backward_infer(const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride,
                                   const Dims& padding, bool ceil_mode, bool, int64_t) {
  constexpr std::string_view op = "avg_pool_backward";
  check_floating(op, g);
  const Dims out = spatial_of(op, g, kernel.size()), ones = Dims::filled(kernel.size(), 1);
  check_window(op, kernel, stride, padding, ones);
  check_list(op, size, kernel.size(), 1, "size");
  check<ShapeError>(pooled_sizes(op, size, kernel, stride, padding, ones, ceil_mode) == out, op, "an input of ", size,
                    " does not give a result of ", out);
  return pooled_meta(g, size);
}

using AvgPoolOp = Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, bool, bool, int64_t)>;
using AvgPoolBackwardOp =
    Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool, bool, int64_t)>;
extern const AvgPoolBackwardOp avg_pool_backward_op;

const AvgPoolOp avg_pool_op{{
    .schema = "avg_pool(Tensor x, int[] kernel, int[] stride, int[] padding, bool ceil_mode=false, bool "
              "count_include_pad=true, int divisor=0) -> Tensor",
    .shard = "n ...! -> n ...!",
    .doc = "The mean of each window over the last one to three dimensions (as many as kernel has entries). Padding "
           "counts as zeros "
           "unless count_include_pad is false. With a divisor other than 0 the sum over it. avg_pool1d, avg_pool2d and "
           "avg_pool3d are the friendlier forms.",
    .infer = avg_pool_infer,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& kernel, const Dims& stride,
                                 const Dims& padding, bool ceil_mode, bool count, int64_t divisor) {
      resample(on, y, x, kernel.size(),
               mean_axes(spatial_of("avg_pool", x, kernel.size()), kernel, stride, padding, ceil_mode, count, divisor));
    }),
    .backward =
        [](Backward& b, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count, int64_t divisor) {
          b.set(0, avg_pool_backward_op(b.gy(), spatial_of("avg_pool", x, kernel.size()), kernel, stride, padding,
                                        ceil_mode, count, divisor));
        },
    .cost =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count,
           int64_t divisor) {
          return move_cost(x, avg_pool_infer(x, kernel, stride, padding, ceil_mode, count, divisor).shape,
                           window_size(kernel));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 6, 7}), Dims{2, 3}, Dims{2, 2}, Dims{1, 0});
          s.add(s.tensor({2, 3, 8}), Dims{3}, Dims{2}, Dims{1}, true, false)
              .named("one dimension, ceil, padding not counted");
          s.add(s.tensor({2, 3, 8}), Dims{3}, Dims{3}, Dims{1}, true, true).named("ceil, padding counted");
          s.add(transpose(s.tensor({2, 6, 3, 7}), 1, 2), Dims{3, 3}, Dims{1, 2}, Dims{1, 1}).named("strided");
          s.add(s.tensor({2, 6, 7, 8}).permute({0, 3, 1, 2}), Dims{3, 3}, Dims{1, 2}, Dims{1, 1})
              .named("channels innermost");
          s.add(s.tensor({2, 2, 4, 5, 3}), Dims{2, 3, 2}, Dims{2, 2, 1}, Dims{1, 0, 1}, true, false)
              .named("three dimensions");
          s.add(s.tensor({2, 3, 6, 7}), Dims{3, 2}, Dims{2, 2}, Dims{1, 1}, true, true, 5).named("divisor, ceil");
          s.add(s.tensor({2, 6, 7, 8}).permute({0, 3, 1, 2}), Dims{3, 3}, Dims{1, 2}, Dims{1, 1}, false, false, -7)
              .named("divisor, channels innermost");
          s.add(s.tensor({2, 2, 4, 5, 3}), Dims{2, 3, 2}, Dims{2, 2, 1}, Dims{1, 0, 1}, true, true, 4)
              .named("divisor, three dimensions");
          s.invalid<ShapeError>("does not fit", s.tensor({1, 2, 2}), Dims{3}, Dims{1}, Dims{0});
          s.invalid<ValueError>("half the kernel", s.tensor({1, 2, 4}), Dims{2}, Dims{1}, Dims{2});
          if (s.benchmarking()) s.bench(s.tensor({8, 64, 16, 56, 56}), Dims{3, 3, 3}, Dims{2, 2, 2}, Dims{1, 1, 1});
        },
    .reference =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count,
           int64_t divisor) {
          const Shape result = avg_pool_infer(x, kernel, stride, padding, ceil_mode, count, divisor).shape;
          const Dims in = spatial_of("avg_pool", x, kernel.size());
          Dims out;
          for (int i = 0; i < kernel.size(); ++i) out.push_back(result[result.size() - kernel.size() + i]);
          return reference(x, result, in, out, false, [&](int64_t d, int64_t i, int64_t j) {
            return mean_weight(d, i, j, in[d], kernel[d], stride[d], padding[d], count, divisor);
          });
        },
}};

const AvgPoolBackwardOp avg_pool_backward_op{{
    .schema =
        "avg_pool_backward(Tensor g, int[] size, int[] kernel, int[] stride, int[] padding, bool ceil_mode=false, "
        "bool count_include_pad=true, int divisor=0) -> Tensor",
    .shard = "n ...! -> n ...!",
    .internal = true,
    .doc = "Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of "
           "avg_pool.",
    .infer = avg_pool_backward_infer,
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& g, const Dims& size, const Dims& kernel,
                                 const Dims& stride, const Dims& padding, bool ceil_mode, bool count, int64_t divisor) {
      resample_transposed(on, x, g, kernel.size(), mean_axes(size, kernel, stride, padding, ceil_mode, count, divisor));
    }),
    .backward =
        [](Backward& b, const Tensor&, const Dims&, const Dims& kernel, const Dims& stride, const Dims& padding,
           bool ceil_mode, bool count,
           int64_t divisor) { b.set(0, avg_pool_op(b.gy(), kernel, stride, padding, ceil_mode, count, divisor)); },
    .cost =
        [](const Tensor& g, const Dims& size, const Dims& kernel, const Dims&, const Dims&, bool, bool, int64_t) {
          return Cost{static_cast<double>(g.numel()) * window_size(kernel),
                      static_cast<double>(g.nbytes() + with_spatial(g.shape(), size).product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4, 3}), Dims{6, 7}, Dims{2, 3}, Dims{2, 2}, Dims{1, 0});
          s.add(s.tensor({2, 3, 5}), Dims{8}, Dims{3}, Dims{2}, Dims{1}, true, false);
          s.add(s.tensor({2, 2, 2, 4}), Dims{5, 4, 3}, Dims{2, 3, 2}, Dims{2, 2, 1}, Dims{0, 1, 1})
              .named("three dimensions");
          s.add(s.tensor({2, 3, 5}), Dims{8}, Dims{3}, Dims{2}, Dims{1}, true, true, -3).named("divisor");
          s.invalid<ShapeError>("does not give", s.tensor({2, 3, 5}), Dims{20}, Dims{3}, Dims{2}, Dims{1});
        },
    .reference =
        [](const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding,
           bool ceil_mode, bool count, int64_t divisor) {
          const Shape result =
              avg_pool_backward_infer(g, size, kernel, stride, padding, ceil_mode, count, divisor).shape;
          return reference(g, result, size, spatial_of("avg_pool_backward", g, kernel.size()), true,
                           [&](int64_t d, int64_t i, int64_t j) {
                             return mean_weight(d, i, j, size[d], kernel[d], stride[d], padding[d], count, divisor);
                           });
        },
}};

Axes adaptive_axes(const Dims& in, const Dims& out) {
  return axes_of(in.size(), [&](int64_t d) { return adaptive_axis(in[d], out[d]); });
}

Tensor adaptive_reference(const Tensor& x, const Dims& out) {
  const Dims in = spatial_of("adaptive_avg_pool", x, out.size());
  return reference(x, with_spatial(x.shape(), out), in, out, false,
                   [&](int64_t d, int64_t i, int64_t j) { return adaptive_weight(i, j, in[d], out[d]); });
}

const Op<Tensor(const Tensor&, const Dims&)> adaptive_avg_pool_op{{
    .schema = "adaptive_avg_pool(Tensor x, int[] output_size) -> Tensor",
    .shard = "n ...! -> n ...!",
    .doc = "Means of windows that cover the last one to three dimensions so that the result has output_size; output i "
           "covers inputs "
           "floor(i in / out) to ceil((i + 1) in / out) - 1.",
    .infer = [](const Tensor& x, const Dims& output_size) { return to_size("adaptive_avg_pool", x, output_size); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& out) {
      resample(on, y, x, out.size(), adaptive_axes(spatial_of("adaptive_avg_pool", x, out.size()), out));
    }),
    .backward =
        [](Backward& b, const Tensor& x, const Dims& out) {
          b.set(0, adaptive_avg_pool_backward(b.gy(), spatial_of("adaptive_avg_pool", x, out.size())));
        },
    .cost = [](const Tensor& x, const Dims& out) { return move_cost(x, with_spatial(x.shape(), out), 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 5, 7}), Dims{2, 3});
          s.add(s.tensor({2, 3, 5}), Dims{8}).named("larger");
          s.add(s.tensor({3, 4, 6}), Dims{1, 1}).named("global");
          s.add(s.tensor({2, 3, 5, 4}), Dims{2, 3, 5}).named("three dimensions");
          s.add(s.tensor({2, 3, 5, 4}), Dims{1, 1, 3}).named("whole planes");
          s.invalid<ValueError>("size", s.tensor({2, 3, 5}), Dims{0});
          s.invalid<ShapeError>("dimensions", s.tensor({5}), Dims{2});
        },
    .reference = adaptive_reference,
}};

const Op<Tensor(const Tensor&, const Dims&)> adaptive_avg_pool_backward_op{{
    .schema = "adaptive_avg_pool_backward(Tensor g, int[] size) -> Tensor",
    .shard = "n ...! -> n ...!",
    .internal = true,
    .doc = "Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of "
           "adaptive_avg_pool.",
    .infer = [](const Tensor& g, const Dims& size) { return to_size("adaptive_avg_pool_backward", g, size); },
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& g, const Dims& size) {
      resample_transposed(on, x, g, size.size(),
                          adaptive_axes(size, spatial_of("adaptive_avg_pool_backward", g, size.size())));
    }),
    .backward =
        [](Backward& b, const Tensor& g, const Dims& size) {
          b.set(0, adaptive_avg_pool(b.gy(), spatial_of("adaptive_avg_pool_backward", g, size.size())));
        },
    .cost = [](const Tensor& g, const Dims& size) { return move_cost(g, with_spatial(g.shape(), size), 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 2, 3}), Dims{5, 7});
          s.add(s.tensor({2, 3, 8}), Dims{5});
          s.add(s.tensor({2, 3, 5, 4}), Dims{4, 3, 7}).named("three dimensions");
        },
    .reference =
        [](const Tensor& g, const Dims& size) {
          const Dims out = spatial_of("adaptive_avg_pool_backward", g, size.size());
          return reference(g, with_spatial(g.shape(), size), size, out, true,
                           [&](int64_t d, int64_t i, int64_t j) { return adaptive_weight(i, j, size[d], out[d]); });
        },
}};

// ---- the friendlier forms -------------------------------------------------------------------------------------------

Tensor avg_pool_nd(std::string_view op, int spatial, const Tensor& x, const Dims& kernel, const Dims& stride,
                   const Dims& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  check_rank(op, x, spatial);
  const Dims k = spread(kernel, spatial);
  check(k.size() == spatial, op, "kernel ", kernel, " needs ", spatial, " entries");
  check(!divisor || *divisor != 0, op, "divisor_override must not be 0");
  const Dims s = stride.empty() ? k : spread(stride, spatial), p = spread(padding, spatial);
  if (!is_floating(x.dtype())) return avg_pool_integers(op, x, k, s, p, ceil_mode, count_include_pad, divisor);
  return avg_pool_op(x, k, s, p, ceil_mode, count_include_pad, divisor.value_or(0));
}

// The sum of each window over its divisor, window by window.
Tensor avg_by_hand(int spatial, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                   bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  const Dims k = spread(kernel, spatial), s = stride.empty() ? k : spread(stride, spatial),
             p = spread(padding, spatial);
  const Dims in = spatial_of("avg_pool", x, spatial), ones = Dims::filled(spatial, 1);
  const Dims out = pooled_sizes("avg_pool", in, k, s, p, ones, ceil_mode);
  const Shape result = with_spatial(x.shape(), out);
  const auto weight = [&](int64_t d, int64_t i, int64_t j) {
    return mean_weight(d, i, j, in[d], k[d], s[d], p[d], count_include_pad, 0);
  };
  // Sums first: a sum of shares would not be a whole number where the mean is one.
  const Tensor y = reference(x, result, in, out, false,
                             [&](int64_t d, int64_t i, int64_t j) { return weight(d, i, j) == 0 ? 0.0 : 1.0; });
  std::vector<double> sums = y.to_vector<double>();
  for (size_t at = 0; at < sums.size(); ++at) {
    double places = 1;
    auto rest = static_cast<int64_t>(at);
    for (int d = spatial - 1; d >= 0; --d) {
      double most = 0;
      for (int64_t j = 0; j < in[d]; ++j) most = std::max(most, weight(d, rest % out[d], j));
      if (most > 0) places *= std::round(1 / most);
      rest /= out[d];
    }
    sums[at] /= divisor ? static_cast<double>(*divisor) : places;
  }
  return from_span<double>(sums, result);
}
using AvgSignature = Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, bool, bool);
using DivisorSignature = Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, bool, bool,
                                std::optional<int64_t>);
using SizeSignature = Tensor(const Tensor&, const Dims&);

const Op<AvgSignature> avg_pool1d_op{{
    .schema = "avg_pool1d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], bool ceil_mode=false, bool "
              "count_include_pad=true) -> Tensor",
    .doc = "The mean of each window along the last dimension of [n, c, length] or [c, length]. The stride is the "
           "kernel's size unless given.",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad) {
          return avg_pool_nd("avg_pool1d", 1, x, kernel, stride, padding, ceil_mode, count_include_pad, std::nullopt);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 7}), Dims{2});
          s.add(s.tensor({3, 7}), Dims{3}, Dims{2}, Dims{1}, true, false);
          s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{2});
        },
    .reference =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad) {
          return avg_by_hand(1, x, kernel, stride, padding, ceil_mode, count_include_pad, std::nullopt);
        },
}};

const Op<DivisorSignature> avg_pool2d_op{{
    .schema = "avg_pool2d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], bool ceil_mode=false, bool "
              "count_include_pad=true, int? divisor_override=None) -> Tensor",
    .doc = "The mean of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the "
           "kernel's size unless "
           "given. A list with one entry serves both dimensions. With divisor_override the sum over it. Means of "
           "integers are rounded towards 0.",
    .example = "assert(avg_pool2d(ones({2, 3, 8, 6}), {2}).shape() == Shape({2, 3, 4, 3}));",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad, std::optional<int64_t> divisor) {
          return avg_pool_nd("avg_pool2d", 2, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 6, 6}), Dims{2});
          s.add(s.tensor({3, 7, 6}), Dims{3, 2}, Dims{2}, Dims{1}, true, false);
          s.add(s.tensor({1, 2, 6, 7}), Dims{3, 2}, Dims{2}, Dims{1}, true, true, 5).named("divisor");
          s.add(s.tensor({1, 2, 6, 7}), Dims{3, 2}, Dims{2}, Dims{1}, false, false, -2).named("divisor");
          s.invalid<ValueError>("divisor", s.tensor({1, 7, 7}), Dims{2}, Dims{2}, Dims{0}, false, true, 0);
          s.invalid<ShapeError>("dimensions", s.tensor({7, 7}), Dims{2});
        },
    .reference =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad, std::optional<int64_t> divisor) {
          return avg_by_hand(2, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
        },
}};

const Op<DivisorSignature> avg_pool3d_op{{
    .schema = "avg_pool3d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], bool ceil_mode=false, bool "
              "count_include_pad=true, int? divisor_override=None) -> Tensor",
    .doc = "The mean of each window over the last three dimensions of [n, c, d, h, w] or [c, d, h, w]. The stride is "
           "the kernel's size unless given. A list with one entry serves all three dimensions. "
           "With divisor_override the sum over it.",
    .example = "assert(avg_pool3d(ones({2, 3, 4, 8, 6}), {2}).shape() == Shape({2, 3, 2, 4, 3}));",
    .composed =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad, std::optional<int64_t> divisor) {
          return avg_pool_nd("avg_pool3d", 3, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2, 4, 4, 6}), Dims{2});
          s.add(s.tensor({2, 5, 4, 6}), Dims{3, 2, 3}, Dims{2}, Dims{1}, true, false);
          s.add(s.tensor({2, 5, 4, 6}), Dims{3, 2, 3}, Dims{2}, Dims{1}, true, true, 7).named("divisor");
          s.invalid<ShapeError>("dimensions", s.tensor({7, 7, 7}), Dims{2});
        },
    .reference =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
           bool count_include_pad, std::optional<int64_t> divisor) {
          return avg_by_hand(3, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor);
        },
}};

const Op<SizeSignature> adaptive_avg_pool1d_op{{
    .schema = "adaptive_avg_pool1d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means along the last dimension of [n, c, length] or [c, length], of windows such that the result has "
           "output_size.",
    .composed = [](const Tensor& x,
                   const Dims& out) { return adaptive_avg_pool(x, adaptive_size("adaptive_avg_pool1d", 1, x, out)); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 7}), Dims{3});
          s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{3});
        },
    .reference = [](const Tensor& x, const Dims& out) { return adaptive_reference(x, spread(out, 1)); },
}};

const Op<SizeSignature> adaptive_avg_pool2d_op{{
    .schema = "adaptive_avg_pool2d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the result has "
           "output_size.",
    .example = "assert(adaptive_avg_pool2d(ones({2, 3, 9, 7}), {1}).shape() == Shape({2, 3, 1, 1}));",
    .composed = [](const Tensor& x,
                   const Dims& out) { return adaptive_avg_pool(x, adaptive_size("adaptive_avg_pool2d", 2, x, out)); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 7, 5}), Dims{3, 2});
          s.invalid<ValueError>("entries", s.tensor({2, 3, 7, 5}), Dims{3, 2, 1});
        },
    .reference = [](const Tensor& x, const Dims& out) { return adaptive_reference(x, spread(out, 2)); },
}};

const Op<SizeSignature> adaptive_avg_pool3d_op{{
    .schema = "adaptive_avg_pool3d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means over the last three dimensions of [n, c, d, h, w] or [c, d, h, w], of windows such that the result "
           "has output_size.",
    .example = "assert(adaptive_avg_pool3d(ones({2, 3, 4, 9, 7}), {1}).shape() == Shape({2, 3, 1, 1, 1}));",
    .composed = [](const Tensor& x,
                   const Dims& out) { return adaptive_avg_pool(x, adaptive_size("adaptive_avg_pool3d", 3, x, out)); },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2, 4, 5, 3}), Dims{3, 2, 2});
          s.add(s.tensor({2, 4, 5, 3}), Dims{1}).named("global, no batch");
          s.invalid<ValueError>("entries", s.tensor({2, 3, 4, 5, 6}), Dims{3, 2});
        },
    .reference = [](const Tensor& x, const Dims& out) { return adaptive_reference(x, spread(out, 3)); },
}};

}  // namespace

Tensor avg_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                bool count_include_pad) {
  return avg_pool_op(x, kernel, stride, padding, ceil_mode, count_include_pad, 0);
}
Tensor avg_pool_backward(const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding,
                         bool ceil_mode, bool count_include_pad) {
  return avg_pool_backward_op(g, size, kernel, stride, padding, ceil_mode, count_include_pad, 0);
}
Tensor adaptive_avg_pool(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool_op(x, output_size);
}
Tensor adaptive_avg_pool_backward(const Tensor& g, const Dims& size) {
  return adaptive_avg_pool_backward_op(g, size);
}
Tensor avg_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                  bool count_include_pad) {
  return avg_pool1d_op(x, kernel, stride, padding, ceil_mode, count_include_pad);
}
Tensor avg_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override) {
  return avg_pool2d_op(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor avg_pool3d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override) {
  return avg_pool3d_op(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool1d_op(x, output_size);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool2d_op(x, output_size);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool3d_op(x, output_size);
}

}  // namespace strata
