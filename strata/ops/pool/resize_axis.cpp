// Resizing along one dimension by a filter: cubic, or as wide as the step.

#include "strata/ops/naive_inl.h"
#include "strata/ops/pool/pool_common_inl.h"
#include "strata/ops/pool/resize_axis_kernel.h"

namespace strata {
namespace {
using namespace pool;

using Axiswise = Op<Tensor(const Tensor&, int64_t, int64_t, const std::string&, bool, bool, double)>;

TensorMeta resized_axis(std::string_view op, const Tensor& x, int64_t dim, int64_t size, const std::string& mode,
                        double scale) {
  check_floating(op, x);
  check(mode == "linear" || mode == "cubic", op, "mode must be linear or cubic, got \"", mode, "\"");
  check(scale >= 0 && std::isfinite(scale), op, "scale must be a number of at least 0, got ", scale);
  check(dim >= -x.dim() && dim < x.dim(), op, "dim ", dim, " is none of ", x);
  check(size >= 1, op, "size must be at least 1, got ", size);
  Shape shape = x.shape();
  int64_t& old = shape[naive::from_front(dim, x.dim())];
  check<ShapeError>(old > 0, op, "dim ", dim, " of ", x, " is empty");
  old = size;
  return like(x).with_shape(shape);
}

double filter_step(int64_t in, int64_t out, bool align_corners, double scale) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0.0;
  return scale == 0 ? static_cast<double>(in) / static_cast<double>(out) : scale;
}

Filter filter_of(int64_t in, int64_t out, const std::string& mode, bool align_corners, bool antialias, double scale) {
  const double step = filter_step(in, out, align_corners, scale);
  return {in, out, mode == "cubic", align_corners, antialias, step, step > 1 ? 1 / step : 1.0};
}

// How much each input counts in output i, written without the kernels' windows: every input, and for those at the
// borders what lies outside.
std::vector<double> shares(int64_t i, int64_t in, int64_t out, const std::string& mode, bool align, bool antialias,
                           double scale) {
  const double step = filter_step(in, out, align, scale), a = antialias ? -0.5 : -0.75;
  const auto filter = [&](double at) {
    at = std::abs(at);
    if (mode == "linear") return std::max(0.0, 1 - at);
    if (at <= 1) return (a + 2) * std::pow(at, 3) - (a + 3) * at * at + 1;
    return at < 2 ? a * std::pow(at, 3) - 5 * a * at * at + 8 * a * at - 4 * a : 0.0;
  };
  std::vector<double> share(static_cast<size_t>(in));
  if (antialias) {
    const double wide = std::max(step, 1.0), reach = (mode == "cubic" ? 2 : 1) * wide,
                 middle = step * (static_cast<double>(i) + 0.5);
    double total = 0;
    for (int64_t j = 0; j < in; ++j) {
      const auto at = static_cast<double>(j);
      if (at < std::trunc(middle - reach + 0.5) || at >= std::trunc(middle + reach + 0.5)) continue;
      share[j] = filter((at + 0.5 - middle) / wide);
      total += share[j];
    }
    for (double& s : share) s /= total;
    return share;
  }
  const double at = align ? static_cast<double>(i) * step : (static_cast<double>(i) + 0.5) * step - 0.5;
  for (int64_t j = -3; j < in + 3; ++j) share[std::clamp<int64_t>(j, 0, in - 1)] += filter(at - static_cast<double>(j));
  return share;
}

Tensor by_shares(const Tensor& x, int64_t dim, int64_t in, int64_t out, bool transposed, const std::string& mode,
                 bool align, bool antialias, double scale) {
  const naive::Array from(x);
  dim = naive::from_front(dim, x.dim());
  Shape shape = x.shape();
  shape[dim] = transposed ? in : out;
  naive::Array to(shape);
  for (int64_t i = 0; i < out; ++i) {
    const std::vector<double> share = shares(i, in, out, mode, align, antialias, scale);
    naive::each(x.shape(), [&](const Dims& place) {
      if (transposed ? place[dim] != i : false) return;
      for (int64_t j = 0; transposed && j < in; ++j) to[naive::moved(place, dim, j)] += share[j] * from[place];
      if (!transposed) to[naive::moved(place, dim, i)] += share[place[dim]] * from[place];
    });
  }
  return to;
}

// Calls f(dense input, dense result, elements before dim, elements after it).
template <class F>
void along(Tensor& y, const Tensor& x, int64_t dim, F&& f) {
  int64_t outer = 1, inner = 1;
  dim = naive::from_front(dim, x.dim());
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != dim) (d < dim ? outer : inner) *= x.size(d);
  }
  dense(y, x, [&](const Tensor& from, Tensor& to) { f(from, to, outer, inner); });
}

void axis_samples(Samples& s, const Shape& shape, int64_t dim, int64_t size) {
  s.add(s.tensor(shape), dim, size, "cubic");
  s.add(s.tensor(shape), dim, size, "cubic", true).named("align corners");
  s.add(s.tensor(shape), dim, size, "linear", false, true).named("antialias");
  s.add(s.tensor(shape), dim, size, "cubic", true, true).named("antialias, align corners");
  s.add(s.tensor(shape), dim, size, "linear").named("linear");
}

const Axiswise resize_axis_op{{
    .schema = "resize_axis(Tensor x, int dim, int size, str mode=\"linear\", bool align_corners=false, bool "
              "antialias=false, float scale=0.0) -> Tensor",
    .shard = "along dim",
    .doc = "Dimension `dim` resized to `size` by a filter: linear, or cubic convolution (Keys, 1981, with a = -0.75; "
           "-0.5 with antialias). With antialias the filter is as wide as the step where that is more than 1, and its "
           "weights add up to 1. scale is the step in the input for one in the result; 0 takes it from the sizes. "
           "interpolate is the friendlier form. ShapeError, ValueError.",
    .example = "assert(resize_axis(ones({2, 8}), 1, 3, \"cubic\", false, true).shape() == Shape({2, 3}));",
    .infer = [](const Tensor& x, int64_t dim, int64_t size, const std::string& mode, bool, bool,
                double scale) { return resized_axis("resize_axis", x, dim, size, mode, scale); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim, int64_t size,
                                 const std::string& mode, bool align, bool antialias, double scale) {
      const Filter filter = filter_of(x.size(dim), size, mode, align, antialias, scale);
      along(y, x, dim, [&](const Tensor& from, Tensor& to, int64_t outer, int64_t inner) {
        if constexpr (on.cuda)
          filter_axis_cuda(filter, outer, inner, x.dtype(), from.raw_data(), to.raw_data());
        else
          cpu::filter_axis(filter, outer, inner, x.dtype(), from.raw_data(), to.raw_data());
      });
    }),
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim, int64_t, const std::string& mode, bool align, bool antialias,
           double scale) { b.set(0, resize_axis_backward(b.gy(), dim, x.size(dim), mode, align, antialias, scale)); },
    .cost =
        [](const Tensor& x, int64_t dim, int64_t size, const std::string& mode, bool, bool, double scale) {
          return move_cost(x, resized_axis("resize_axis", x, dim, size, mode, scale).shape, mode == "cubic" ? 8 : 4);
        },
    .samples =
        [](Samples& s) {
          axis_samples(s, {2, 5, 3}, 1, 8);
          axis_samples(s, {3, 7}, -1, 3);
          s.add(transpose(s.tensor({4, 3, 6}), 0, 2), 0, 2, "linear", false, true).named("strided");
          s.add(s.tensor({2, 5}), 1, 7, "cubic", false, false, 0.7).named("given scale");
          s.add(s.tensor({2, 9}), 1, 3, "cubic", false, true, 2.6).named("given scale, antialias");
          s.add(s.tensor({2, 5}), 1, 1, "cubic", true).named("to one");
          s.add(s.tensor({2, 1}), 1, 4, "cubic").named("from one");
          s.invalid<ValueError>("mode", s.tensor({2, 3}), 1, 2, "nearest");
          s.invalid<ValueError>("scale", s.tensor({2, 3}), 1, 2, "linear", false, false, -1.0);
          s.invalid<ValueError>("size", s.tensor({2, 3}), 1, 0);
          s.invalid<ValueError>("dim 2", s.tensor({2, 3}), 2, 1);
          s.invalid<ShapeError>("empty", s.tensor({2, 0}), 1, 1);
          s.invalid<DTypeError>("floating", s.tensor({2, 3}, DType::i64), 1, 2);
          if (s.benchmarking()) s.bench(s.tensor({4, 32, 256, 256}), 2, 512, "cubic");
        },
    .reference =
        [](const Tensor& x, int64_t dim, int64_t size, const std::string& mode, bool align, bool antialias,
           double scale) { return by_shares(x, dim, x.size(dim), size, false, mode, align, antialias, scale); },
}};

const Axiswise resize_axis_backward_op{{
    .schema = "resize_axis_backward(Tensor g, int dim, int size, str mode=\"linear\", bool align_corners=false, bool "
              "antialias=false, float scale=0.0) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "The gradient of resize_axis: each element of g added to the inputs it came from, by their weights. `size` "
           "is the input's.",
    .infer = [](const Tensor& g, int64_t dim, int64_t size, const std::string& mode, bool, bool,
                double scale) { return resized_axis("resize_axis_backward", g, dim, size, mode, scale); },
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& g, int64_t dim, int64_t size,
                                 const std::string& mode, bool align, bool antialias, double scale) {
      const Filter filter = filter_of(size, g.size(dim), mode, align, antialias, scale);
      along(x, g, dim, [&](const Tensor& from, Tensor& to, int64_t outer, int64_t inner) {
        if constexpr (on.cuda)
          filter_axis_transposed_cuda(filter, outer, inner, g.dtype(), from.raw_data(), to.raw_data());
        else
          cpu::filter_axis_transposed(filter, outer, inner, g.dtype(), from.raw_data(), to.raw_data());
      });
    }),
    .backward = [](Backward& b, const Tensor& g, int64_t dim, int64_t, const std::string& mode, bool align,
                   bool antialias,
                   double scale) { b.set(0, resize_axis(b.gy(), dim, g.size(dim), mode, align, antialias, scale)); },
    .cost =
        [](const Tensor& g, int64_t dim, int64_t size, const std::string& mode, bool, bool, double scale) {
          return move_cost(g, resized_axis("resize_axis_backward", g, dim, size, mode, scale).shape, 8);
        },
    .samples =
        [](Samples& s) {
          axis_samples(s, {2, 8, 3}, 1, 5);
          axis_samples(s, {3, 3}, -1, 7);
          s.add(s.tensor({2, 3}), 1, 9, "cubic", false, true, 2.6).named("given scale, antialias");
          s.add(s.tensor({2, 1}), 1, 5, "cubic", true).named("from one");
          s.invalid<ValueError>("mode", s.tensor({2, 3}), 1, 2, "nearest");
        },
    .reference = [](const Tensor& g, int64_t dim, int64_t size, const std::string& mode, bool align, bool antialias,
                    double scale) { return by_shares(g, dim, size, g.size(dim), true, mode, align, antialias, scale); },
}};

}  // namespace

Tensor resize_axis(const Tensor& x, int64_t dim, int64_t size, const std::string& mode, bool align_corners,
                   bool antialias, double scale) {
  return resize_axis_op(x, dim, size, mode, align_corners, antialias, scale);
}
Tensor resize_axis_backward(const Tensor& g, int64_t dim, int64_t size, const std::string& mode, bool align_corners,
                            bool antialias, double scale) {
  return resize_axis_backward_op(g, dim, size, mode, align_corners, antialias, scale);
}

}  // namespace strata
