// Pooling by a p-norm, and what takes max_pool back.

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

// A list of the kernel's for each dimension; an empty stride is the kernel's.
Dims entries(std::string_view op, const Dims& given, int spatial, std::string_view name) {
  const Dims d = spread(given, spatial);
  check(d.size() == spatial, op, name, " ", given, " needs ", spatial, " entries");
  return d;
}
Dims stride_of(std::string_view op, const Dims& stride, const Dims& kernel, int spatial) {
  return stride.empty() ? kernel : entries(op, stride, spatial, "stride");
}

// ---- p-norms -------------------------------------------------------------------------------------------------------

using LpSignature = Tensor(const Tensor&, double, const Dims&, const Dims&, bool);

Tensor lp_pool(std::string_view op, int spatial, const Tensor& x, double p, const Dims& kernel, const Dims& stride,
               bool ceil_mode) {
  check_rank(op, x, spatial);
  check_floating(op, x);
  check(p != 0 && std::isfinite(p), op, "norm_type must be a number other than 0, got ", p);
  const Dims k = entries(op, kernel, spatial, "kernel");
  // The mean of a whole window; one at the border counts as if it were whole.
  const Tensor mean =
      avg_pool(pow(x, p), k, stride_of(op, stride, k, spatial), Dims::filled(spatial, 0), ceil_mode, true);
  return pow(mean * window_size(k), 1 / p);
}

// By definition, but for windows that reach over the end: their mean is over what they have.
template <int Spatial>
Tensor lp_by_hand(const Tensor& x, double p, const Dims& kernel, const Dims& stride, bool ceil_mode) {
  const Dims k = spread(kernel, Spatial), s = stride.empty() ? k : spread(stride, Spatial),
             in = spatial_of("", x, Spatial);
  Dims out;
  for (int d = 0; d < Spatial; ++d) {
    int64_t n = 1;  // with ceil_mode one more for what is left, if it begins inside
    while (n * s[d] + k[d] <= in[d] || (ceil_mode && (n - 1) * s[d] + k[d] < in[d] && n * s[d] < in[d])) ++n;
    out.push_back(n);
  }
  const naive::Array from(x);
  return naive::made(with_spatial(x.shape(), out), [&](const Dims& place) {
    double sum = 0, count = 0;
    naive::each(k, [&](const Dims& step) {
      Dims at = place;
      for (int d = 0; d < Spatial; ++d) {
        int64_t& i = at[at.size() - Spatial + d];
        i = i * s[d] + step[d];
        if (i >= in[d]) return;
      }
      sum += std::pow(from[at], p);
      ++count;
    });
    return std::pow(sum / count * static_cast<double>(k.product()), 1 / p);
  });
}

constexpr std::string_view kLpDoc =
    "(sum of x^norm_type)^(1 / norm_type) of each window; one that reaches over the end, with ceil_mode, counts as a "
    "whole one. The stride is the kernel's size unless given. ShapeError, ValueError for a norm_type of 0.";

const Op<LpSignature> lp_pool1d_op{{
    .schema = "lp_pool1d(Tensor x, float norm_type, int[] kernel, int[] stride=[], bool ceil_mode=false) -> Tensor",
    .doc = kLpDoc,
    .example = "assert(lp_pool1d(full({1, 1, 4}, 2.0), 1, {2}).to_vector<float>() == std::vector<float>({4, 4}));",
    .composed = [](const Tensor& x, double p, const Dims& kernel, const Dims& stride,
                   bool ceil_mode) { return lp_pool("lp_pool1d", 1, x, p, kernel, stride, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({2, 3, 7}, 0.5, 2), 2.0, Dims{3});
          s.add(s.uniform({3, 7}, 0.5, 2), 3.0, Dims{2}, Dims{1}, true);
          s.add(s.uniform({2, 1, 8}, 0.5, 2), 1.5, Dims{3}, Dims{2}, true).named("over the end");
          s.invalid<ValueError>("other than 0", s.tensor({1, 2, 4}), 0.0, Dims{2});
          s.invalid<ShapeError>("dimensions", s.tensor({4}), 2.0, Dims{2});
        },
    .reference = lp_by_hand<1>,
}};

const Op<LpSignature> lp_pool2d_op{{
    .schema = "lp_pool2d(Tensor x, float norm_type, int[] kernel, int[] stride=[], bool ceil_mode=false) -> Tensor",
    .doc = kLpDoc,
    .example = "assert(lp_pool2d(ones({1, 2, 4, 6}), 2, {2}).sum().item() == 24);",
    .composed = [](const Tensor& x, double p, const Dims& kernel, const Dims& stride,
                   bool ceil_mode) { return lp_pool("lp_pool2d", 2, x, p, kernel, stride, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({2, 3, 5, 4}, 0.5, 2), 2.0, Dims{2, 3});
          s.add(s.uniform({3, 5, 7}, 0.5, 2), 1.5, Dims{3, 2}, Dims{2}, true).named("over the end");
          s.invalid<ValueError>("entries", s.tensor({1, 2, 4, 4}), 2.0, Dims{2, 2, 2});
        },
    .reference = lp_by_hand<2>,
}};

const Op<LpSignature> lp_pool3d_op{{
    .schema = "lp_pool3d(Tensor x, float norm_type, int[] kernel, int[] stride=[], bool ceil_mode=false) -> Tensor",
    .doc = kLpDoc,
    .example = "assert(lp_pool3d(ones({1, 1, 2, 2, 2}), 1, {2}).item() == 8);",
    .composed = [](const Tensor& x, double p, const Dims& kernel, const Dims& stride,
                   bool ceil_mode) { return lp_pool("lp_pool3d", 3, x, p, kernel, stride, ceil_mode); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({2, 3, 3, 4, 5}, 0.5, 2), 2.0, Dims{2});
          s.add(s.uniform({3, 4, 3, 5}, 0.5, 2), 3.0, Dims{2, 2, 3}, Dims{1, 2, 2}, true).named("over the end");
          s.invalid<ValueError>("entries", s.tensor({1, 2, 4, 4, 4}), 2.0, Dims{2, 2});
        },
    .reference = lp_by_hand<3>,
}};

// ---- back from max_pool
// ----------------------------------------------------------------------------------------------

using UnpoolSignature = Tensor(const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&,
                               const std::optional<Dims>&);

Dims unpooled_size(std::string_view op, int spatial, const Tensor& x, const Dims& kernel, const Dims& stride,
                   const Dims& padding, const std::optional<Dims>& output_size) {
  check_rank(op, x, spatial);
  const Dims k = entries(op, kernel, spatial, "kernel"), s = stride_of(op, stride, k, spatial),
             p = entries(op, padding, spatial, "padding");
  Dims usual, wanted;
  if (output_size) {
    const int more = std::max(output_size->size() - spatial, 0);  // a whole shape: its last sizes
    wanted = Dims(std::span<const int64_t>(*output_size).subspan(static_cast<size_t>(more)));
    wanted = entries(op, wanted, spatial, "output_size");
  }
  for (int d = 0; d < spatial; ++d) {
    check(k[d] > 0 && s[d] > 0 && p[d] >= 0, op, "kernel ", k, ", stride ", s, ", padding ", p, " are no windows");
    const __int128 size = __int128{x.size(d - spatial) - 1} * s[d] - __int128{2} * p[d] + k[d];
    check<ShapeError>(size > 0 && size < (__int128{1} << 62), op, "windows of ", k, " and padding ", p,
                      " leave nothing of ", x);
    usual.push_back(static_cast<int64_t>(size));
  }
  if (!output_size) return usual;
  for (int d = 0; d < spatial; ++d) {
    const __int128 off = __int128{wanted[d]} - usual[d];
    check<ShapeError>(wanted[d] > 0 && off < s[d] && off > -__int128{s[d]}, op, "output_size ", wanted,
                      " must be within a stride of ", usual);
  }
  return wanted;
}

template <int Spatial>
Tensor unpooled_by_hand(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride,
                        const Dims& padding, const std::optional<Dims>& output_size) {
  const Dims size = unpooled_size("", Spatial, x, kernel, stride, padding, output_size);
  const naive::Array from(x);
  const std::vector<int64_t> at = indices.to_vector<int64_t>();
  naive::Array to(with_spatial(x.shape(), size));
  const int64_t each = from.size() / planes_of(x, Spatial);
  for (int64_t i = 0; i < from.size(); ++i) {
    const int64_t p = at[static_cast<size_t>(i)];
    if (p >= 0 && p < size.product()) to.flat(i / each * size.product() + p) += from.flat(i);
  }
  return to;
}

constexpr std::string_view kUnpoolDoc =
    "Zeros with x's elements at `indices`, where max_pool found them in their planes; those with one place are added, "
    "those outside left out. The result's size is (length - 1) stride - 2 padding + kernel, unless output_size (its "
    "last entries) says another within a stride of it. ShapeError, ValueError, DTypeError.";

// Where max_pool of such an input finds its elements: each at a place of its own, for windows that do not overlap.
Tensor places(const Shape& x, const Dims& kernel, const Dims& padding) {
  const Dims once = Dims::filled(kernel.size(), 1);
  return std::get<1>(max_pool(Samples(DType::f32).distinct(x), kernel, kernel, padding, once, false));
}

const Op<UnpoolSignature> max_unpool1d_op{{
    .schema = "max_unpool1d(Tensor x, Tensor indices, int[] kernel, int[] stride=[], int[] padding=[0], int[]? "
              "output_size=None) -> Tensor",
    .doc = kUnpoolDoc,
    .example = "assert(max_unpool1d(ones({1, 1, 2}), full({1, 1, 2}, 3), {2}).to_vector<float>()[3] == 2);",
    .composed =
        [](const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
           const std::optional<Dims>& size) {
          return plane_scatter(x, indices, unpooled_size("max_unpool1d", 1, x, kernel, stride, padding, size));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4}), places({2, 3, 8}, {2}, {0}), Dims{2});
          s.add(s.tensor({3, 4}), places({3, 9}, {2}, {0}), Dims{2}, Dims{2}, Dims{0}, Dims{9}).named("given size");
          s.invalid<ShapeError>("within a stride", s.tensor({2, 3, 4}), s.integers({2, 3, 4}, 0, 8), Dims{2}, Dims{2},
                                Dims{0}, Dims{10});
          s.invalid<ShapeError>("leave nothing", s.tensor({1, 1, 1}), s.integers({1, 1, 1}, 0, 1), Dims{1}, Dims{1},
                                Dims{1});
          s.invalid<ShapeError>("dimensions", s.tensor({4}), s.integers({4}, 0, 8), Dims{2});
        },
    .reference = unpooled_by_hand<1>,
}};

const Op<UnpoolSignature> max_unpool2d_op{{
    .schema = "max_unpool2d(Tensor x, Tensor indices, int[] kernel, int[] stride=[], int[] padding=[0], int[]? "
              "output_size=None) -> Tensor",
    .doc = kUnpoolDoc,
    .example = "const auto [y, at] = max_pool(ones({1, 1, 4, 4}), {2, 2}, {2, 2}, {0, 0}, {1, 1}, false);\n"
               "assert(max_unpool2d(y, at, {2}).sum().item() == 4);",
    .composed =
        [](const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
           const std::optional<Dims>& size) {
          return plane_scatter(x, indices, unpooled_size("max_unpool2d", 2, x, kernel, stride, padding, size));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 2, 3}), places({2, 3, 4, 6}, {2, 2}, {0, 0}), Dims{2});
          s.add(s.tensor({3, 2, 2}), places({3, 6, 5}, {3, 2}, {1, 0}), Dims{3, 2}, Dims{3}, Dims{1, 0}, Dims{6, 5})
              .named("given size, padded");
          s.add(s.tensor({2, 3, 20, 20}), places({2, 3, 40, 40}, {2, 2}, {0, 0}), Dims{2}).named("large");
          s.invalid<ShapeError>("within a stride", s.tensor({2, 3, 2, 2}), s.integers({2, 3, 2, 2}, 0, 8), Dims{2},
                                Dims{2}, Dims{0}, Dims{4, 2});
          s.invalid<ValueError>("entries", s.tensor({2, 3, 2, 2}), s.integers({2, 3, 2, 2}, 0, 8), Dims{2, 2, 2});
        },
    .reference = unpooled_by_hand<2>,
}};

const Op<UnpoolSignature> max_unpool3d_op{{
    .schema = "max_unpool3d(Tensor x, Tensor indices, int[] kernel, int[] stride=[], int[] padding=[0], int[]? "
              "output_size=None) -> Tensor",
    .doc = kUnpoolDoc,
    .example = "assert(max_unpool3d(ones({1, 1, 1, 1, 1}), full({1, 1, 1, 1, 1}, 7), {2}).sum().item() == 1);",
    .composed =
        [](const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
           const std::optional<Dims>& size) {
          return plane_scatter(x, indices, unpooled_size("max_unpool3d", 3, x, kernel, stride, padding, size));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 2, 1, 2}), places({2, 3, 4, 2, 4}, {2, 2, 2}, {0, 0, 0}), Dims{2});
          s.add(s.tensor({3, 2, 2, 3}), places({3, 4, 4, 6}, {2, 3, 2}, {0, 1, 0}), Dims{2, 3, 2}, Dims{},
                Dims{0, 1, 0})
              .named("padded");
          s.invalid<ShapeError>("dimensions", s.tensor({2, 2, 2}), s.integers({2, 2, 2}, 0, 8), Dims{2});
        },
    .reference = unpooled_by_hand<3>,
}};

}  // namespace

Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride, bool ceil_mode) {
  return lp_pool1d_op(x, norm_type, kernel, stride, ceil_mode);
}
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride, bool ceil_mode) {
  return lp_pool2d_op(x, norm_type, kernel, stride, ceil_mode);
}
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel, const Dims& stride, bool ceil_mode) {
  return lp_pool3d_op(x, norm_type, kernel, stride, ceil_mode);
}
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
                    const std::optional<Dims>& output_size) {
  return max_unpool1d_op(x, indices, kernel, stride, padding, output_size);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
                    const std::optional<Dims>& output_size) {
  return max_unpool2d_op(x, indices, kernel, stride, padding, output_size);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const Dims& kernel, const Dims& stride, const Dims& padding,
                    const std::optional<Dims>& output_size) {
  return max_unpool3d_op(x, indices, kernel, stride, padding, output_size);
}

}  // namespace strata
