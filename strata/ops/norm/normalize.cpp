// normalize and local_response_norm: composed, computed in f32 where x is bf16 or f16, and rounded once.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor wide(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  return is_reduced_floating(x.dtype()) ? x.to(DType::f32) : x;
}

const Op<Tensor(const Tensor&, double, int64_t, double)> normalize_op{{
    .schema = "normalize(Tensor input, float p=2.0, int dim=1, float eps=1e-12) -> Tensor",
    .doc = "input over its p-norm along `dim`, or over eps where that is larger. DTypeError, IndexError.",
    .example = "assert(std::abs(normalize(full({1, 4}, 3.0)).sum().item() - 2) < 1e-6);",
    .composed =
        [](const Tensor& x, double p, int64_t dim, double eps) {
          const Tensor v = wide(x, "normalize");
          const Tensor length = clamp_min(norm(v, p, {wrap_dim(dim, x.dim(), "normalize")}, true), eps);
          // One quotient a line; of lengths that have none each element has its own.
          return (eps >= 1e-30 ? v * reciprocal(length) : v / length).to(x.dtype());
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.off_grid({2, 3, 4}), 1.0, -2);
          s.add(s.tensor({4}), 3.0, 0, 100.0).named("eps");
          s.invalid<IndexError>("", s.tensor({4}));
          s.invalid<DTypeError>("floating", s.tensor({3, 5}, DType::i64));
        },
    .reference =
        [](const Tensor& x, double p, int64_t dim, double eps) {
          const int64_t at = dim < 0 ? dim + x.dim() : dim, n = x.size(at);
          int64_t inner = 1;
          for (int64_t d = at + 1; d < x.dim(); ++d) inner *= x.size(d);
          const std::vector<double> v = x.to_vector<double>();
          std::vector<double> r(v.size());
          for (size_t i = 0; i < v.size(); ++i) {
            const auto k = static_cast<int64_t>(i), first = k / (n * inner) * n * inner + k % inner;
            double sum = 0;
            for (int64_t j = 0; j < n; ++j) sum += std::pow(std::abs(v[static_cast<size_t>(first + j * inner)]), p);
            r[i] = v[i] / std::max(std::pow(sum, 1 / p), eps);
          }
          return from_span<double>(r, x.shape());
        },
}};

const Op<Tensor(const Tensor&, int64_t, double, double, double)> local_response_norm_op{{
    .schema = "local_response_norm(Tensor input, int size, float alpha=1e-4, float beta=0.75, float k=1.0) -> Tensor",
    .doc =
        "input [N, C, ..] over (k + alpha m)^beta, m being the mean of the squares of `size` channels around each, "
        "those "
        "beyond the ends counting as 0 (Krizhevsky et al., 2012). ShapeError, ValueError unless size > 0, DTypeError.",
    .example = "assert(local_response_norm(ones({1, 1, 2}), 1, 1.0, 1.0).sum().item() == 1);",
    .composed =
        [](const Tensor& x, int64_t size, double alpha, double beta, double k) {
          const std::string_view op = "local_response_norm";
          check<ShapeError>(x.dim() >= 3, op, "wants [N, C, ..] of at least 3 dimensions, got ", x);
          check(size > 0, op, "size must be positive, got ", size);
          const Tensor v = wide(x, op);
          const int64_t inner = x.numel() == 0 ? 0 : x.numel() / (x.size(0) * x.size(1));
          if (x.numel() == 0) return x * 1.0;
          const Tensor squares = pad((v * v).reshape({x.size(0), x.size(1), inner}), {0, 0, size / 2, (size - 1) / 2});
          const Tensor mean = avg_pool2d(squares, {size, 1}, {1, 1}).reshape(x.shape());
          return (v * pow(mean * alpha + k, -beta)).to(x.dtype());
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 5, 3}), 3);
          s.add(s.tensor({2, 5, 2, 2}), 4, 0.5, 0.6, 2.0);
          s.invalid<ShapeError>("3 dimensions", s.tensor({2, 3}), 2);
          s.invalid<ValueError>("size", s.tensor({2, 3, 2}), 0);
        },
    .reference =
        [](const Tensor& x, int64_t size, double alpha, double beta, double k) {
          const std::vector<double> v = x.to_vector<double>();
          const int64_t channels = x.size(1), inner = x.numel() / (x.size(0) * channels);
          std::vector<double> r(v.size());
          for (size_t i = 0; i < v.size(); ++i) {
            const auto at = static_cast<int64_t>(i), c = at / inner % channels;
            double sum = 0;
            for (int64_t o = c - size / 2; o <= c + (size - 1) / 2; ++o)
              if (o >= 0 && o < channels) sum += std::pow(v[static_cast<size_t>(at + (o - c) * inner)], 2);
            r[i] = v[i] / std::pow(k + alpha * sum / static_cast<double>(size), beta);
          }
          return from_span<double>(r, x.shape());
        },
}};

}  // namespace

Tensor normalize(const Tensor& x, double p, int64_t dim, double eps) {
  return normalize_op(x, p, dim, eps);
}
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k) {
  return local_response_norm_op(x, size, alpha, beta, k);
}

}  // namespace strata
