// Resizing by the nearest element, or linearly: over all dimensions at once. Wider filters are in resize_axis.cpp.

#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

// Input position of output i (https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html).
double source(int64_t i, int64_t in, int64_t out, const std::string& mode, bool align_corners, double scale) {
  if (align_corners && mode == "linear")
    return out > 1 ? static_cast<double>(i) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  if (scale == 0) scale = static_cast<double>(in) / static_cast<double>(out);
  if (mode == "nearest") return std::floor(static_cast<double>(i) * scale);
  if (mode == "nearest-exact") return std::floor((static_cast<double>(i) + 0.5) * scale);
  return std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
}

double resize_weight(int64_t i, int64_t j, int64_t in, int64_t out, const std::string& mode, bool align_corners,
                     double scale) {
  const double at = std::min(source(i, in, out, mode, align_corners, scale), static_cast<double>(in - 1));
  return std::max(0.0, 1 - std::abs(at - static_cast<double>(j)));  // a hat; at is whole where nearest
}

Axis axis_of(int64_t in, int64_t out, const std::string& mode, bool align_corners, double scale) {
  Axis a;
  a.kind = AxisKind::resize;
  a.nearest = mode != "linear", a.centred = mode == "nearest-exact", a.align_corners = align_corners;
  a.in = in, a.out = out;
  a.scale = scale == 0 ? static_cast<double>(in) / static_cast<double>(out) : scale;
  return a;
}

// The step along a dimension: of the first one, unless the others have their own.
double step_of(int64_t d, double scale, std::optional<double> second, std::optional<double> third) {
  return d == 1 ? second.value_or(scale) : d == 2 ? third.value_or(scale) : scale;
}

Axes resize_axes(const Dims& in, const Dims& out, const std::string& mode, bool align_corners, double scale,
                 std::optional<double> second, std::optional<double> third) {
  return axes_of(in.size(), [&](int64_t d) {
    return axis_of(in[d], out[d], mode, align_corners, step_of(d, scale, second, third));
  });
}

TensorMeta resized(std::string_view op, const Tensor& x, const Dims& size, const std::string& mode, double scale,
                   std::optional<double> second, std::optional<double> third) {
  check(mode == "nearest" || mode == "nearest-exact" || mode == "linear", op,
        "mode must be nearest, nearest-exact or linear, got \"", mode, "\"");
  for (const double s : {scale, second.value_or(0), third.value_or(0)})
    check(s >= 0 && std::isfinite(s), op, "scale must be a number of at least 0, got ", s);
  return to_size(op, x, size);
}

using Resize = Op<Tensor(const Tensor&, const Dims&, const std::string&, bool, double, std::optional<double>,
                         std::optional<double>)>;

const Resize resize_op{{
    .schema = "resize(Tensor x, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0, float? "
              "second_scale=None, float? third_scale=None) -> Tensor",
    .shard = "n ...! -> n ...!",
    .doc =
        "The last one to three dimensions resized to `size`: the nearest element (\"nearest\" by the output's start, "
        "\"nearest-exact\" by its middle), or linear in each of them. scale is the step in the input for one in the "
        "result; 0 takes it from the sizes. second_scale and third_scale are those of the second and third of the "
        "dimensions, where they differ. interpolate is the friendlier form.",
    .infer = [](const Tensor& x, const Dims& size, const std::string& mode, bool, double scale,
                std::optional<double> second,
                std::optional<double> third) { return resized("resize", x, size, mode, scale, second, third); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& size, const std::string& mode,
                                 bool align, double scale, std::optional<double> second, std::optional<double> third) {
      resample(on, y, x, size.size(),
               resize_axes(spatial_of("resize", x, size.size()), size, mode, align, scale, second, third));
    }),
    .backward =
        [](Backward& b, const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale,
           std::optional<double> second, std::optional<double> third) {
          b.set(0, resize_backward(b.gy(), spatial_of("resize", x, size.size()), mode, align, scale, second, third));
        },
    .cost =
        [](const Tensor& x, const Dims& size, const std::string& mode, bool, double, std::optional<double>,
           std::optional<double>) {
          return move_cost(x, with_spatial(x.shape(), size), mode == "linear" ? 3.0 * size.size() : 0);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3});
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear").named("linear");
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear", true).named("align corners");
          s.add(s.tensor({2, 4, 5, 8}).permute({0, 3, 1, 2}), Dims{7, 3}, "linear").named("channels innermost");
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "nearest-exact").named("nearest, exact");
          s.add(s.tensor({2, 3, 4}), Dims{9}, "linear", false, 0.45).named("given scale");
          s.add(s.tensor({2, 4, 5}), Dims{8, 2}, "linear", false, 0.5, 2.0).named("a scale for each");
          s.add(s.tensor({2, 4, 5, 3}), Dims{8, 2, 4}, "nearest-exact", false, 0.5, 2.0, 0.7)
              .named("three dimensions, a scale for each");
          s.add(s.tensor({2, 3, 4, 2}), Dims{5, 2, 3}, "linear").named("three dimensions");
          s.add(s.tensor({2, 3, 4, 2}), Dims{5, 2, 3}).named("three dimensions, nearest");
          s.add(transpose(s.tensor({2, 4, 3, 5}), 1, 2), Dims{1, 1}, "linear", true).named("to one, strided");
          s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
          s.invalid<ValueError>("size", s.tensor({2, 3, 4}), Dims{0});
          s.invalid<ValueError>("scale", s.tensor({2, 3, 4}), Dims{9}, "nearest", false, double(INFINITY));
          s.invalid<ValueError>("scale", s.tensor({2, 3, 4}), Dims{9, 9}, "nearest", false, 1.0, -1.0);
          s.invalid<ShapeError>("dimensions", s.tensor({4}), Dims{2});
          if (s.benchmarking()) s.bench(s.tensor({4, 32, 16, 32, 32}), Dims{32, 64, 64}, "linear");
        },
    .reference =
        [](const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale,
           std::optional<double> second, std::optional<double> third) {
          const Dims in = spatial_of("resize", x, size.size());
          return reference(x, with_spatial(x.shape(), size), in, size, false, [&](int64_t d, int64_t i, int64_t j) {
            return resize_weight(i, j, in[d], size[d], mode, align, step_of(d, scale, second, third));
          });
        },
}};

const Resize resize_backward_op{{
    .schema = "resize_backward(Tensor g, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0, "
              "float? second_scale=None, float? third_scale=None) -> Tensor",
    .shard = "n ...! -> n ...!",
    .internal = true,
    .doc = "The gradient of resize: each element of g added to the inputs it came from, by their weights. `size` is "
           "the input's.",
    .infer =
        [](const Tensor& g, const Dims& size, const std::string& mode, bool, double scale, std::optional<double> second,
           std::optional<double> third) { return resized("resize_backward", g, size, mode, scale, second, third); },
    .kernels = on_each_device([](auto on, Tensor& x, const Tensor& g, const Dims& size, const std::string& mode,
                                 bool align, double scale, std::optional<double> second, std::optional<double> third) {
      resample_transposed(
          on, x, g, size.size(),
          resize_axes(size, spatial_of("resize_backward", g, size.size()), mode, align, scale, second, third));
    }),
    .backward =
        [](Backward& b, const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale,
           std::optional<double> second, std::optional<double> third) {
          b.set(0, resize(b.gy(), spatial_of("resize_backward", g, size.size()), mode, align, scale, second, third));
        },
    .cost = [](const Tensor& g, const Dims& size, const std::string&, bool, double, std::optional<double>,
               std::optional<double>) { return move_cost(g, with_spatial(g.shape(), size), 3.0); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5});
          s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5}, "linear");
          s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5}, "nearest-exact").named("nearest, exact");
          s.add(s.tensor({2, 3, 9}), Dims{4}, "linear", true);
          s.add(s.tensor({2, 8, 2}), Dims{4, 5}, "linear", false, 0.5, 2.0).named("a scale for each");
          s.add(s.tensor({2, 5, 2, 3}), Dims{3, 4, 2}, "linear").named("three dimensions");
          s.add(s.tensor({2, 8, 2, 4}), Dims{4, 5, 3}, "nearest-exact", false, 0.5, 2.0, 0.7)
              .named("three dimensions, a scale for each");
          s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
        },
    .reference =
        [](const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale,
           std::optional<double> second, std::optional<double> third) {
          const Dims out = spatial_of("resize_backward", g, size.size());
          return reference(g, with_spatial(g.shape(), size), size, out, true, [&](int64_t d, int64_t i, int64_t j) {
            return resize_weight(i, j, size[d], out[d], mode, align, step_of(d, scale, second, third));
          });
        },
}};

}  // namespace

Tensor resize(const Tensor& x, const Dims& size, const std::string& mode, bool align_corners, double scale,
              std::optional<double> second_scale, std::optional<double> third_scale) {
  return resize_op(x, size, mode, align_corners, scale, second_scale, third_scale);
}
Tensor resize_backward(const Tensor& g, const Dims& size, const std::string& mode, bool align_corners, double scale,
                       std::optional<double> second_scale, std::optional<double> third_scale) {
  return resize_backward_op(g, size, mode, align_corners, scale, second_scale, third_scale);
}

}  // namespace strata
