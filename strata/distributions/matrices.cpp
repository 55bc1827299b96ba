// Distributions over matrices.

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;
using Kind = Constraint::Kind;

Tensor squared(const Tensor& triangle) {
  return matmul(triangle, triangle.transpose(-2, -1));
}
// 0, 1/2, ... (p - 1) / 2, over a new last dimension.
Tensor halves(const Tensor& like, int64_t p) {
  return counts_like(like, 0, p) / 2;
}
// The derivative of mvlgamma.
Tensor mvdigamma(const Tensor& x, int64_t p) {
  return sum(digamma(x.unsqueeze(-1) - halves(x, p)), {-1});
}

// df, covariance_matrix, precision_matrix, scale_tril
Tensor wishart_derived(const Args& d, size_t i) {
  if (i == 3) return linalg_cholesky(d.given(1) ? d[1] : linalg_inv(d[2]));
  return i == 1 ? squared(d[3]) : cholesky_inverse(d[3]);
}
int64_t size_of(const Args& d) {
  return d[3].size(-1);
}
// A number for each matrix, as one that multiplies it.
Tensor for_matrix(const Tensor& x) {
  return x.unsqueeze(-1).unsqueeze(-1);
}

}  // namespace

std::span<const DistributionRecord> matrix_records() {
  static const DistributionRecord records[] = {
      {.name = "Wishart",
       .module = "wishart",
       .doc = "Sums of `df` outer products of normal vectors of one covariance. Drawn by Bartlett's decomposition, "
              "\"On the theory of statistical regression\", 1933 (Kotz, Balakrishnan, Johnson; Gupta, Nagar, Matrix "
              "Variate Distributions, ch. 3).",
       .parameters = {{"df", "Degrees of freedom, more than the matrix's size less 1.", positive()},
                      {"covariance_matrix", "The covariance of the vectors.", Kind::positive_definite, Role::one_of, 2},
                      {"precision_matrix", "Its inverse.", Kind::positive_definite, Role::one_of, 2},
                      {"scale_tril", "Its Cholesky triangle.", Kind::lower_cholesky, Role::one_of, 2, {}, true}},
       .support = Kind::positive_definite,
       .has_rsample = true,
       .exponential = true,
       .event_shape =
           [](const Args& d) {
             for (size_t i = 1; i < 4; ++i)
               if (d.given(i)) return right(d[i].shape(), 2);
             return Shape();
           },
       .derive = wishart_derived,
       .together =
           [](const Args& d) {
             const int64_t p = d.event_shape()[0];
             check(d.event_shape()[1] == p, "Wishart", "the matrix must be square, got ", d.event_shape());
             check_values(d[0] > p - 1, "Wishart", [&] {
               return strata::cat("Value of df=", d[0].to_string(), " expected to be greater than ndim - 1 = ", p - 1,
                                  ".");
             });
           },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const int64_t p = size_of(d);
             const Tensor free = d[0].unsqueeze(-1) / 2 - halves(d[0], p);
             const Tensor roots = sqrt(2 * gamma_of(free, without_right(s, 1), g));
             const Tensor a = tril(normal_like(d[0], s, g), -1) + diag_embed(roots);
             return squared(matmul(d[3], a));
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor df = d[0];
             const int64_t p = size_of(d);
             const Shape batch = broadcast_shapes(without_right(x.shape(), 2), d.batch_shape(), "Wishart");
             const Shape whole = joined(batch, {p, p});
             const Tensor over = cholesky_solve(x.expand(whole), d[3].expand(whole));
             const Tensor trace = sum(diagonal(over, 0, -2, -1), {-1});
             return -df * (0.5 * kLn2 * p + half_log_det(d[3])) - mvlgamma(df / 2, p) + (df - p - 1) / 2 * logdet(x) -
                    trace / 2;
           },
       .entropy =
           [](const Args& d) {
             const Tensor df = d[0];
             const auto p = size_of(d);
             return (p + 1) * (half_log_det(d[3]) + 0.5 * kLn2 * p) + mvlgamma(df / 2, p) -
                    (df - p - 1) / 2 * mvdigamma(df / 2, p) + df * p / 2;
           },
       .mean = [](const Args& d) { return for_matrix(d[0]) * squared(d[3]); },
       .mode =
           [](const Args& d) {
             const Tensor factor = d[0] - (size_of(d) + 1);
             return for_matrix(where(factor > 0, factor, kNaN)) * squared(d[3]);
           },
       .variance =
           [](const Args& d) {
             const Tensor v = squared(d[3]), diag = diagonal(v, 0, -2, -1);
             return for_matrix(d[0]) * (square(v) + diag.unsqueeze(-1) * diag.unsqueeze(-2));
           }},
      {.name = "LKJCholesky",
       .module = "lkj_cholesky",
       .doc =
           "Cholesky triangles of correlation matrices, whose density is det^(concentration - 1). Drawn by the onion "
           "method (Lewandowski, Kurowicka, Joe, \"Generating random correlation matrices based on vines and "
           "extended onion method\", 2009).",
       .parameters =
           {{"dim", "The size of the matrices, 2 or more.", {Kind::integer_greater_than_eq, 2.0}, Role::count},
            {"concentration", "1 is uniform; the larger, the closer to the identity.", positive(), Role::batch, 0,
             1.0}},
       .support = Kind::corr_cholesky,
       .event_shape =
           [](const Args& d) {
             return Shape{d.count(0), d.count(0)};
           },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor eta = d[1];
             const int64_t n = d.count(0);
             // Rows of a triangle: directions that are uniform on a sphere, times roots of beta numbers.
             const Tensor at = clamp_min(counts_like(eta, -1, n - 1), 0);
             const Tensor a = (at + 0.5).expand(joined(without_right(s, 2), {n}));
             const Tensor b = (eta.unsqueeze(-1) + 0.5 * static_cast<double>(n - 2) - 0.5 * at).expand(a.shape());
             const Tensor size = strata::dirichlet(stack({a, b}, -1), g).select(-1, 0).unsqueeze(-1);
             const Tensor noise = tril(normal_like(eta, s, g), -1);
             const Tensor length = sqrt(sum(square(noise), {-1}, true));
             const Tensor w = sqrt(size) * (noise / where(length > 0, length, 1.0));
             const Tensor left = clamp_min(1 - sum(square(w), {-1}), tiny_of(eta.dtype()));
             return w + diag_embed(sqrt(left));
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor eta = d[1];
             const int64_t n = d.count(0), m = n - 1;
             const Tensor order = 2 * (eta - 1).unsqueeze(-1) + static_cast<double>(n) - counts_like(eta, 2, n + 1);
             const Tensor free = sum(order * diagonal(x, 0, -2, -1).narrow(-1, 1, m).log(), {-1});
             const Tensor alpha = eta + 0.5 * static_cast<double>(m);
             return free - (0.5 * static_cast<double>(m) * std::log(kPi) + mvlgamma(alpha - 0.5, m) -
                            lgamma(alpha) * static_cast<double>(m));
           }},
  };
  return records;
}

}  // namespace strata::distributions
