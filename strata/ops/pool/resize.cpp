#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

// Input position of output i (https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html).
double source(int64_t i, int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  if (align_corners && !nearest)
    return out > 1 ? static_cast<double>(i) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  if (scale == 0) scale = static_cast<double>(in) / static_cast<double>(out);
  if (nearest) return std::floor(static_cast<double>(i) * scale);
  return std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
}

Axis resize_axis(int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  Axis a;
  a.kind = AxisKind::resize;
  a.nearest = nearest, a.align_corners = align_corners;
  a.in = in, a.out = out;
  a.scale = scale == 0 ? static_cast<double>(in) / static_cast<double>(out) : scale;
  return a;
}

double resize_weight(int64_t i, int64_t j, int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  const double at = std::min(source(i, in, out, nearest, align_corners, scale), static_cast<double>(in - 1));
  return std::max(0.0, 1 - std::abs(at - static_cast<double>(j)));  // a hat; at is whole where nearest
}

bool is_nearest(std::string_view op, const std::string& mode) {
  check(mode == "nearest" || mode == "linear", op, "mode must be nearest or linear, got \"", mode, "\"");
  return mode == "nearest";
}

Axes resize_axes(const Dims& in, const Dims& out, bool nearest, bool align_corners, double scale) {
  return axes_of(in.size(), [&](int64_t d) { return resize_axis(in[d], out[d], nearest, align_corners, scale); });
}

const Op<Tensor(const Tensor&, const Dims&, const std::string&, bool, double)> resize_op{{
    .schema = "resize(Tensor x, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0) -> Tensor",
    .doc =
        "The last one to three dimensions resized to `size`: nearest, or linear in each of them. scale is the step in "
        "the input for "
        "one in the result; 0 takes it from the sizes. interpolate is the friendlier form.",
    .infer =
        [](const Tensor& x, const Dims& size, const std::string& mode, bool, double scale) {
          is_nearest("resize", mode);
          check(scale >= 0 && std::isfinite(scale), "resize", "scale must be a number of at least 0, got ", scale);
          return to_size("resize", x, size);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
          resample(on, y, x, size.size(),
                   resize_axes(spatial_of("resize", x, size.size()), size, mode == "nearest", align, scale));
        }),
    .backward =
        [](Backward& b, const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
          b.set(0, resize_backward(b.gy(), spatial_of("resize", x, size.size()), mode, align, scale));
        },
    .cost =
        [](const Tensor& x, const Dims& size, const std::string& mode, bool, double) {
          return move_cost(x, with_spatial(x.shape(), size), mode == "nearest" ? 0 : 3.0 * size.size());
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3});
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear").named("linear");
          s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear", true).named("align corners");
          s.add(s.tensor({2, 3, 4}), Dims{9}, "linear", false, 0.45).named("given scale");
          s.add(s.tensor({2, 3, 4, 2}), Dims{5, 2, 3}, "linear").named("three dimensions");
          s.add(s.tensor({2, 3, 4, 2}), Dims{5, 2, 3}).named("three dimensions, nearest");
          s.add(transpose(s.tensor({2, 4, 3, 5}), 1, 2), Dims{1, 1}, "linear", true).named("to one, strided");
          s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
          s.invalid<ValueError>("size", s.tensor({2, 3, 4}), Dims{0});
          s.invalid<ValueError>("scale", s.tensor({2, 3, 4}), Dims{9}, "nearest", false, double(INFINITY));
          s.invalid<ShapeError>("dimensions", s.tensor({4}), Dims{2});
          if (s.benchmarking()) s.bench(s.tensor({4, 32, 16, 32, 32}), Dims{32, 64, 64}, "linear");
        },
    .reference =
        [](const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
          const Dims in = spatial_of("resize", x, size.size());
          return reference(x, with_spatial(x.shape(), size), in, size, false, [&](int64_t d, int64_t i, int64_t j) {
            return resize_weight(i, j, in[d], size[d], mode == "nearest", align, scale);
          });
        },
}};

const Op<Tensor(const Tensor&, const Dims&, const std::string&, bool, double)> resize_backward_op{{
    .schema = "resize_backward(Tensor g, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0) "
              "-> Tensor",
    .internal = true,
    .doc = "The gradient of resize: each element of g added to the inputs it came from, by their weights. `size` is "
           "the input's.",
    .infer =
        [](const Tensor& g, const Dims& size, const std::string& mode, bool, double scale) {
          is_nearest("resize_backward", mode);
          check(scale >= 0 && std::isfinite(scale), "resize_backward", "scale must be a number of at least 0, got ",
                scale);
          return to_size("resize_backward", g, size);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& x, const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
          resample_transposed(
              on, x, g, size.size(),
              resize_axes(size, spatial_of("resize_backward", g, size.size()), mode == "nearest", align, scale));
        }),
    .backward =
        [](Backward& b, const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
          b.set(0, resize(b.gy(), spatial_of("resize_backward", g, size.size()), mode, align, scale));
        },
    .cost = [](const Tensor& g, const Dims& size, const std::string&, bool,
               double) { return move_cost(g, with_spatial(g.shape(), size), 3.0); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5});
          s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5}, "linear");
          s.add(s.tensor({2, 3, 9}), Dims{4}, "linear", true);
          s.add(s.tensor({2, 5, 2, 3}), Dims{3, 4, 2}, "linear").named("three dimensions");
          s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
        },
    .reference =
        [](const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
          const Dims out = spatial_of("resize_backward", g, size.size());
          return reference(g, with_spatial(g.shape(), size), size, out, true, [&](int64_t d, int64_t i, int64_t j) {
            return resize_weight(i, j, size[d], out[d], mode == "nearest", align, scale);
          });
        },
}};

const Op<Tensor(const Tensor&, const std::optional<Dims>&, std::optional<double>, const std::string&, bool)>
    interpolate_op{{
        .schema = "interpolate(Tensor x, int[]? size=None, float? scale_factor=None, str mode=\"nearest\", bool "
                  "align_corners=false) -> Tensor",
        .doc = "Resizes [n, c, length], [n, c, h, w] or [n, c, d, h, w] to `size`, or to floor(scale_factor * size of "
               "x); exactly one of them. Modes: nearest; linear for one spatial dimension, bilinear for two, trilinear "
               "for three. With align_corners the corner elements map to each other, else the outer corners of the "
               "image do.",
        .example =
            "assert(interpolate(ones({1, 3, 4, 5}), std::nullopt, 2.0, \"bilinear\").shape() == Shape({1, 3, 8, 10}));",
        .composed =
            [](const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor,
               const std::string& mode, bool align_corners) {
              constexpr std::string_view op = "interpolate";
              check<ShapeError>(x.dim() >= 3 && x.dim() <= 5, op, "x needs 3 to 5 dimensions, is ", x);
              const int spatial = static_cast<int>(x.dim()) - 2;
              constexpr std::string_view kLinear[] = {"linear", "bilinear", "trilinear"};
              const bool linear = mode == kLinear[spatial - 1];
              check(linear || mode == "nearest", op, "mode must be nearest or ", kLinear[spatial - 1], " for ", x,
                    ", got \"", mode, "\"");
              check(linear || !align_corners, op, "align_corners needs a linear mode");
              check(size.has_value() != scale_factor.has_value(), op, "needs either size or scale_factor");
              if (size) return resize(x, spread(*size, spatial), linear ? "linear" : "nearest", align_corners, 0);
              check(*scale_factor > 0 && *scale_factor < 1e6, op, "scale_factor must be positive, got ", *scale_factor);
              Dims out;
              for (int i = 0; i < spatial; ++i)
                out.push_back(static_cast<int64_t>(std::floor(static_cast<double>(x.shape()[2 + i]) * *scale_factor)));
              return resize(x, out, linear ? "linear" : "nearest", align_corners, 1 / *scale_factor);
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 4, 5}), Dims{8, 3});
              s.add(s.tensor({2, 3, 4, 5}), std::nullopt, 2.0, "bilinear").named("bilinear");
              s.add(s.tensor({2, 3, 5}), std::nullopt, 1.7, "linear", true).named("linear, align corners");
              s.add(s.tensor({2, 2, 2, 3, 4}), std::nullopt, 2.0, "trilinear").named("trilinear");
              s.invalid<ValueError>("either size", s.tensor({2, 3, 4, 5}));
              s.invalid<ValueError>("mode", s.tensor({2, 3, 4, 5}), Dims{8}, std::nullopt, "linear");
              s.invalid<ShapeError>("dimensions", s.tensor({4, 5}), Dims{8});
              s.invalid<ValueError>("scale_factor", s.tensor({2, 3, 4, 5}), std::nullopt, -1.0);
            },
        .reference =
            [](const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor,
               const std::string& mode, bool align) {
              Dims in, out;
              for (int64_t d = 2; d < x.dim(); ++d) {
                in.push_back(x.shape()[d]);
                const auto scaled =
                    static_cast<int64_t>(std::floor(static_cast<double>(in.back()) * scale_factor.value_or(1)));
                out.push_back(size ? (*size)[size->size() == 1 ? 0 : d - 2] : scaled);
              }
              return reference(x, with_spatial(x.shape(), out), in, out, false, [&](int64_t d, int64_t i, int64_t j) {
                return resize_weight(i, j, in[d], out[d], mode == "nearest", align, size ? 0 : 1 / *scale_factor);
              });
            },
    }};

}  // namespace

Tensor resize(const Tensor& x, const Dims& size, const std::string& mode, bool align_corners, double scale) {
  return resize_op(x, size, mode, align_corners, scale);
}
Tensor resize_backward(const Tensor& g, const Dims& size, const std::string& mode, bool align_corners, double scale) {
  return resize_backward_op(g, size, mode, align_corners, scale);
}
Tensor interpolate(const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor,
                   const std::string& mode, bool align_corners) {
  return interpolate_op(x, size, scale_factor, mode, align_corners);
}

}  // namespace strata
