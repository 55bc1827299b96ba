// Weights over their largest singular value, which power iterations follow.

#include <cmath>
#include <tuple>
#include <vector>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;
using Three = std::tuple<Tensor, Tensor, Tensor>;

constexpr std::string_view kOp = "spectral_norm";
constexpr int64_t kMostIterations = 100'000;  // a call that ends

Three composed(const Tensor& weight, const Tensor& u, const Tensor& v, int64_t iterations, int64_t dim, double eps) {
  check<DTypeError>(is_floating(weight.dtype()), kOp, "needs a floating weight, got ", weight);
  check<ShapeError>(weight.dim() >= 1 && weight.numel() > 0, kOp, "the weight is ", weight,
                    ", wants a dimension or more, and elements");
  check(iterations >= 0 && iterations <= kMostIterations, kOp, "iterations must lie in [0, ", kMostIterations,
        "], got ", iterations);
  const int64_t at = wrap_dim(dim, weight.dim(), kOp), n = weight.size(at), m = weight.numel() / n;
  check<ShapeError>(u.shape() == Shape({n}) && v.shape() == Shape({m}), kOp, "u is [", n, "] and v [", m, "], got ", u,
                    " and ", v);
  if (weight.dim() == 1) return Three(normalize(weight, 2, 0, eps), u.clone(), v.clone());
  const Tensor matrix = (at ? movedim(weight, {at}, {0}) : weight).reshape({n, m});
  Tensor left = u.clone(), right = v.clone();
  {
    const NoGrad guard;
    const Tensor w = matrix.detach();
    for (int64_t i = 0; i < iterations; ++i) {
      left = normalize(mv(w, right), 2, 0, eps);
      right = normalize(mv(w.t(), left), 2, 0, eps);
    }
  }
  return Three(weight / dot(left, mv(matrix, right)), left, right);
}

std::vector<double> unit_of(const naive::Matrix& a, const std::vector<double>& x, double eps) {
  std::vector<double> y(static_cast<size_t>(a.m), 0);
  double length = 0;
  for (int64_t i = 0; i < a.m; ++i) {
    for (int64_t j = 0; j < a.n; ++j) y[static_cast<size_t>(i)] += a(i, j) * x[static_cast<size_t>(j)];
    length += y[static_cast<size_t>(i)] * y[static_cast<size_t>(i)];
  }
  for (double& one : y) one /= std::max(std::sqrt(length), eps);
  return y;
}

Three by_loops(const Tensor& weight, const Tensor& u, const Tensor& v, int64_t iterations, int64_t dim, double eps) {
  const int64_t at = dim < 0 ? dim + weight.dim() : dim, n = weight.size(at), m = weight.numel() / n;
  const std::vector<double> w = weight.to_vector<double>();
  int64_t inner = 1;
  for (int64_t d = at + 1; d < weight.dim(); ++d) inner *= weight.size(d);
  naive::Matrix a(n, m);
  for (int64_t i = 0; i < weight.numel(); ++i)
    a(i / inner % n, i / (inner * n) * inner + i % inner) = w[static_cast<size_t>(i)];
  std::vector<double> left = u.to_vector<double>(), right = v.to_vector<double>();
  double sigma = 0;
  if (weight.dim() == 1) {
    for (const double x : w) sigma += x * x;
    sigma = std::max(std::sqrt(sigma), eps);
  } else {
    for (int64_t i = 0; i < iterations; ++i) {
      left = unit_of(a, right, eps);
      right = unit_of(naive::transposed(a), left, eps);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) sigma += left[static_cast<size_t>(i)] * a(i, j) * right[static_cast<size_t>(j)];
  }
  std::vector<double> y = w;
  for (double& one : y) one /= sigma;
  return Three(from_span<double>(y, weight.shape()), from_span<double>(left, {n}), from_span<double>(right, {m}));
}

const Op<Three(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, double)> spectral_norm_op{{
    .schema = "spectral_norm(Tensor weight, Tensor u, Tensor v, int iterations=0, int dim=0, float eps=1e-12) -> "
              "(Tensor y, Tensor new_u, Tensor new_v)",
    .doc = "The weight, as a matrix of the slices along dim, over u W v, its largest singular value where u and v are "
           "the vectors that belong to it (Miyato et al., arXiv:1802.05957); and u and v after so many power "
           "iterations u = W v, v = W^T u of length 1 (at least eps). Gradients take u and v for constants. A vector "
           "is divided by its length. ShapeError, IndexError, DTypeError, ValueError.",
    .example = "Tensor w = from_span<float>(std::vector<float>{3, 0, 0, 4}, {2, 2});\n"
               "const auto [y, u, v] = spectral_norm(w, ones({2}), ones({2}), 30);\n"
               "assert(allclose(y, w / 4, 1e-5, 1e-5));",
    .composed = composed,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .samples =
        [](Samples& s) {
          // Far from orthogonal to each other: u W v is not near 0.
          const auto weight = [&](const Shape& shape) { return s.uniform(shape, 0.2, 1); };
          s.add(weight({3, 5}), weight({3}), weight({5}));
          s.add(weight({2, 3, 4}), weight({3}), weight({8}), 0, 1).named("another dim");
          s.add(weight({5, 3}).t(), weight({3}), weight({5}), 2).named("iterations, strided").not_differentiable();
          s.add(weight({2, 3, 4}), weight({4}), weight({6}), 1, -1, 0.5).named("iterations").not_differentiable();
          s.add(weight({4}), weight({4}), weight({1}), 1).named("a vector");
          s.invalid<ShapeError>("u is [3]", weight({3, 5}), weight({5}), weight({3}));
          s.invalid<ShapeError>("a dimension or more", weight({}), weight({1}), weight({1}));
          s.invalid<IndexError>("out of range", weight({3, 5}), weight({3}), weight({5}), 0, 2);
          s.invalid<ValueError>("in [0, ", weight({3, 5}), weight({3}), weight({5}), -1);
          s.invalid<DTypeError>("floating", s.tensor({3, 5}, DType::i32), weight({3}), weight({5}));
        },
    .reference = by_loops,
}};

}  // namespace

std::tuple<Tensor, Tensor, Tensor> spectral_norm(const Tensor& weight, const Tensor& u, const Tensor& v,
                                                 int64_t iterations, int64_t dim, double eps) {
  return spectral_norm_op(weight, u, v, iterations, dim, eps);
}

}  // namespace strata
