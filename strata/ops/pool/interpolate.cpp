// The friendly form of resizing.

#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

constexpr std::string_view kLinear[] = {"linear", "bilinear", "trilinear"};
constexpr std::string_view kOp = "interpolate";

using Factor = std::optional<double>;

// What a call asks for, once it is checked: the result's spatial sizes and the step in the input for one in the result
// (0: from the sizes).
struct Wanted {
  int spatial = 0;
  Dims size;
  double step[3] = {};
};

Wanted wanted(const Tensor& x, const std::optional<Dims>& size, Factor factor, const std::string& mode,
              bool align_corners, bool recompute, bool antialias, Factor second, Factor third) {
  check<ShapeError>(x.dim() >= 3 && x.dim() <= 5, kOp, "x needs 3 to 5 dimensions, is ", x);
  Wanted w;
  w.spatial = static_cast<int>(x.dim()) - 2;
  const bool linear = mode == kLinear[w.spatial - 1], cubic = mode == "bicubic";
  check(linear || cubic || mode == "nearest" || mode == "nearest-exact" || mode == "area", kOp,
        "mode must be nearest, nearest-exact, area, bicubic or ", kLinear[w.spatial - 1], " for ", x, ", got \"", mode,
        "\"");
  check<ShapeError>(!cubic || w.spatial == 2, kOp, "mode bicubic wants [N, C, H, W], got ", x);
  check(linear || cubic || !align_corners, kOp, "align_corners needs a linear or cubic mode");
  check(!antialias || (w.spatial == 2 && (linear || cubic)), kOp,
        "antialias goes with modes bilinear and bicubic and [N, C, H, W] only");
  check(size.has_value() != factor.has_value(), kOp, "needs either size or scale_factor");
  check(factor || !(second || third), kOp, "the second and third scale_factor go with the first");
  check((w.spatial > 1 || !second) && (w.spatial > 2 || !third), kOp, "there are more scale_factors than dimensions");
  if (size) {
    w.size = spread(*size, w.spatial);
    check(w.size.size() == w.spatial, kOp, "size ", *size, " needs ", w.spatial, " entries");
    return w;
  }
  for (int d = 0; d < w.spatial; ++d) {
    const double f = d == 1 ? second.value_or(*factor) : d == 2 ? third.value_or(*factor) : *factor;
    check(f > 0 && f < 1e6, kOp, "scale_factor must be positive, got ", f);
    w.size.push_back(static_cast<int64_t>(std::floor(static_cast<double>(x.size(2 + d)) * f)));
    check(w.size[d] > 0, kOp, "a size of ", x.size(2 + d), " times ", f, " leaves nothing");
    // What keeps its size stays as it is, but by the filters that are for all sizes alike (as PyTorch does).
    const bool kept = w.size[d] == x.size(2 + d) && (linear || antialias || mode == "nearest");
    if (!recompute && !kept) w.step[d] = 1 / f;
  }
  return w;
}

Tensor interpolated(const Tensor& x, const std::optional<Dims>& size, Factor factor, const std::string& mode,
                    bool align_corners, bool recompute, bool antialias, Factor second, Factor third) {
  const Wanted w = wanted(x, size, factor, mode, align_corners, recompute, antialias, second, third);
  if (mode == "area") return adaptive_avg_pool(x, w.size);
  if (mode == "bicubic" || antialias) {
    const char* filter = mode == "bicubic" ? "cubic" : "linear";
    // Rows first: what the second pass reads in runs is then as short as it will be.
    const Tensor wide = resize_axis(x, 3, w.size[1], filter, align_corners, antialias, w.step[1]);
    return resize_axis(wide, 2, w.size[0], filter, align_corners, antialias, w.step[0]);
  }
  const bool nearest = mode == "nearest" || mode == "nearest-exact";
  return resize(x, w.size, nearest ? mode : "linear", align_corners, w.step[0], w.step[1], w.step[2]);
}

double cubic(double at, double a) {
  at = std::abs(at);
  return at <= 1 ? ((a + 2) * at - (a + 3)) * at * at + 1 : at < 2 ? ((at - 5) * at + 8) * at * a - 4 * a : 0;
}

// Output i's share of input j along one dimension of sizes `in` and `out`.
double share(int64_t i, int64_t j, int64_t in, int64_t out, double step, const std::string& mode, bool align,
             bool antialias) {
  const auto at_j = static_cast<double>(j), at_i = static_cast<double>(i), n = static_cast<double>(in);
  if (mode == "area") return adaptive_weight(i, j, in, out);
  if (step == 0) step = n / static_cast<double>(out);
  if (align) step = out > 1 ? (n - 1) / static_cast<double>(out - 1) : 0;
  if (mode == "nearest") return std::min(std::floor(at_i * step), n - 1) == at_j;
  if (mode == "nearest-exact") return std::min(std::floor((at_i + 0.5) * step), n - 1) == at_j;
  if (antialias) {
    const double wide = std::max(step, 1.0), middle = (at_i + 0.5) * step, reach = mode == "bicubic" ? 2 : 1;
    const auto value = [&](double k) {
      if (k < std::trunc(middle - reach * wide + 0.5) || k >= std::trunc(middle + reach * wide + 0.5)) return 0.0;
      const double far = (k + 0.5 - middle) / wide;
      return mode == "bicubic" ? cubic(far, -0.5) : std::max(0.0, 1 - std::abs(far));
    };
    double total = 0;
    for (int64_t k = 0; k < in; ++k) total += value(static_cast<double>(k));
    return value(at_j) / total;
  }
  const double at = align ? at_i * step : (at_i + 0.5) * step - 0.5;
  if (mode != "bicubic") return std::max(0.0, 1 - std::abs(std::clamp(at, 0.0, n - 1) - at_j));
  double sum = 0;
  for (int64_t k = -3; k < in + 3; ++k)
    if (std::clamp<int64_t>(k, 0, in - 1) == j) sum += cubic(at - static_cast<double>(k), -0.75);
  return sum;
}

const Op<Tensor(const Tensor&, const std::optional<Dims>&, Factor, const std::string&, bool, bool, bool, Factor,
                Factor)>
    interpolate_op{{
        .schema = "interpolate(Tensor x, int[]? size=None, float? scale_factor=None, str mode=\"nearest\", bool "
                  "align_corners=false, bool recompute_scale_factor=false, bool antialias=false, float? "
                  "second_scale_factor=None, float? third_scale_factor=None) -> Tensor",
        .doc = "Resizes [n, c, length], [n, c, h, w] or [n, c, d, h, w] to `size`, or to floor(scale_factor * size of "
               "x); exactly one of them. Modes: nearest (by the output's start), nearest-exact (by its middle), area "
               "(the mean of what an output covers); linear for one spatial dimension, bilinear and bicubic for two, "
               "trilinear for three. With align_corners the corner elements map to each other, else the outer corners "
               "of the image do. With recompute_scale_factor the step follows from the sizes, not from the factor. "
               "antialias widens the filter of bilinear and bicubic to the step. The second and third spatial "
               "dimension may have a factor of their own.",
        .example = "assert(interpolate(ones({1, 3, 4, 5}), std::nullopt, 2.0, \"bilinear\").shape() == Shape({1, 3, 8, "
                   "10}));",
        .composed = interpolated,
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              const Shape image{2, 3, 4, 5};
              s.add(s.tensor(image), Dims{8, 3});
              s.add(s.tensor(image), none, 1.5, "bilinear");
              s.add(s.tensor({2, 3, 4}), Dims{7}, none, "linear", true);
              s.add(s.tensor({1, 2, 3, 2, 4}), none, 1.5, "trilinear").named("three dimensions");
              s.add(s.tensor({1, 2, 3, 2, 4}), Dims{2, 3, 3}).named("three dimensions, nearest");
              s.add(s.tensor(image), Dims{7, 3}, none, "nearest-exact").named("nearest, exact");
              s.add(s.tensor(image), none, 1.3, "nearest", false, true).named("recomputed factor");
              s.add(s.tensor(image), Dims{3, 7}, none, "area").named("area");
              s.add(s.tensor(image), none, 0.5, "area", false, false, false, 1.4).named("area by factors");
              s.add(s.tensor(image), Dims{7, 3}, none, "bicubic").named("cubic");
              s.add(s.tensor(image), none, 1.7, "bicubic", true).named("cubic, align corners");
              s.add(s.tensor(image), none, 0.6, "bicubic", false, true).named("cubic, recomputed factor");
              s.add(s.tensor(image), Dims{2, 9}, none, "bilinear", false, false, true).named("antialias");
              s.add(s.tensor(image), none, 0.5, "bicubic", false, false, true, 0.7).named("cubic, antialias, factors");
              s.add(s.tensor(image), none, 2.0, "bilinear", false, false, false, 0.5).named("a factor for each");
              s.add(s.tensor(image), none, 1.2, "bilinear").named("a factor that keeps the size");
              s.add(s.tensor(image), none, 1.1, "bicubic", false, false, true).named("antialias that keeps the size");
              s.add(s.tensor({1, 2, 3, 2, 4}), none, 1.5, "nearest", false, false, false, 2.0, 0.5)
                  .named("three factors");
              s.invalid<ValueError>("either size", s.tensor({2, 3, 4}));
              s.invalid<ValueError>("linear", s.tensor({2, 3, 4}), Dims{2}, none, "bilinear");
              s.invalid<ValueError>("positive", s.tensor({2, 3, 4}), none, -1.0);
              s.invalid<ValueError>("leaves nothing", s.tensor({2, 3, 4}), none, 0.1);
              s.invalid<ValueError>("entries", s.tensor(image), Dims{2, 2, 2});
              s.invalid<ValueError>("align_corners", s.tensor(image), Dims{2, 2}, none, "nearest", true);
              s.invalid<ValueError>("antialias", s.tensor({2, 3, 4}), Dims{2}, none, "linear", false, false, true);
              s.invalid<ValueError>("more scale_factors", s.tensor({2, 3, 4}), none, 2.0, "nearest", false, false,
                                    false, 2.0);
              s.invalid<ValueError>("go with", s.tensor(image), Dims{2, 2}, none, "nearest", false, false, false, 2.0);
              s.invalid<ShapeError>("bicubic", s.tensor({2, 3, 4}), Dims{2}, none, "bicubic");
              s.invalid<ShapeError>("3 to 5", s.tensor({2, 3}), Dims{2});
            },
        .reference =
            [](const Tensor& x, const std::optional<Dims>& size, Factor factor, const std::string& mode, bool align,
               bool recompute, bool antialias, Factor second, Factor third) {
              const Wanted w = wanted(x, size, factor, mode, align, recompute, antialias, second, third);
              const Dims in = spatial_of(kOp, x, w.spatial);
              return reference(x, with_spatial(x.shape(), w.size), in, w.size, false,
                               [&](int64_t d, int64_t i, int64_t j) {
                                 return share(i, j, in[d], w.size[d], w.step[d], mode, align, antialias);
                               });
            },
        .tolerance = 2,
        .tolerance_reason = "bicubic adds sixteen products of both signs, one dimension after the other",
    }};

}  // namespace

Tensor interpolate(const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor,
                   const std::string& mode, bool align_corners, bool recompute_scale_factor, bool antialias,
                   std::optional<double> second_scale_factor, std::optional<double> third_scale_factor) {
  return interpolate_op(x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias,
                        second_scale_factor, third_scale_factor);
}

}  // namespace strata
