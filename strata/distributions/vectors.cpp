// Distributions over vectors of real numbers.

#include <vector>

#include "strata/distributions/formulas_inl.h"
#include "strata/distributions/transform.h"

namespace strata::distributions {

// A triangle for each of 8,192 vectors of 64 numbers is 128 MiB: vectors of one are the columns of one solve.
Tensor solved(Tensor triangle, const Tensor& b) {
  const int64_t n = b.size(-1);
  for (int64_t i = 0; i + 2 < triangle.dim(); ++i)  // the same for all
    if (triangle.strides()[static_cast<size_t>(i)] == 0 && triangle.size(i) > 1) triangle = narrow(triangle, i, 0, 1);
  const Shape all =
      broadcast_shapes(without_right(triangle.shape(), 2), without_right(b.shape(), 1), "MultivariateNormal");
  const auto rank = static_cast<int64_t>(all.size());
  std::vector<int64_t> order, columns;  // dimensions that triangles have, then the vectors' own
  Shape batch, apart;
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t at = i - rank + triangle.dim() - 2, size = all[static_cast<size_t>(i)];
    if (at >= 0 && triangle.size(at) != 1) {
      order.push_back(i);
      batch.push_back(size);
    } else {
      columns.push_back(i);
      apart.push_back(size);
      count *= size;
    }
  }
  order.push_back(rank);
  order.insert(order.end(), columns.begin(), columns.end());
  const Tensor right = b.expand(joined(all, {n})).permute(order).reshape(joined(batch, {n, count}));
  const Tensor x = linalg_solve_triangular(triangle.reshape(joined(batch, {n, n})), right, false);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return x.reshape(joined(joined(batch, {n}), apart)).permute(back);
}

namespace {

using Role = Parameter::Role;
using Kind = Constraint::Kind;

Constraint vector_of(const Constraint& c) {
  return c.independent(1);
}
Shape last_of_first(const Args& d) {
  return right(d[0].shape(), 1);
}
Tensor times(const Tensor& matrix, const Tensor& vector) {
  return matmul(matrix, vector.unsqueeze(-1)).squeeze(-1);
}
// Of a precision P = U U^T: the Cholesky triangle of its inverse, by turning rows and columns round.
Tensor triangle_of_precision(const Tensor& p) {
  const Tensor turned = flip(linalg_cholesky(flip(p, {-2, -1})), {-2, -1}).transpose(-2, -1);
  const DeviceScope at(p.device());
  const Tensor unit = strata::eye(p.size(-1), {}, p.dtype()).expand(p.shape());
  return linalg_solve_triangular(turned, unit, false);
}
void same_size(const Args& d, size_t i, int64_t dims) {
  const int64_t n = d[0].size(-1);
  for (int64_t k = 1; k <= dims; ++k)
    check(d[i].size(-k) == n, d.record().name, "Incompatible batch shapes: loc has events of ", n, " numbers, ",
          d.record().parameters[i].name, " the shape ", d[i].shape());
}

// loc, covariance_matrix, precision_matrix, scale_tril
Tensor normal_derived(const Args& d, size_t i) {
  if (i == 3) return d.given(1) ? linalg_cholesky(d[1]) : triangle_of_precision(d[2]);
  if (i == 1) return matmul(d[3], d[3].transpose(-2, -1));
  return cholesky_inverse(d[3]);
}

// loc, cov_factor, cov_diag, _capacitance_tril: I + W^T D^-1 W is all that has to be decomposed.
Tensor scaled_factor(const Args& d) {
  return d[1].transpose(-2, -1) / d[2].unsqueeze(-2);
}
Tensor low_rank_derived(const Args& d, size_t i) {
  const auto [loc, w, diag] = d.first<3>();
  const DeviceScope at(w.device());
  switch (i) {
    case 3:
      return linalg_cholesky(matmul(scaled_factor(d), w) + strata::eye(w.size(-1), {}, w.dtype()));
    case 4:
      return matmul(w, w.transpose(-2, -1)) + diag_embed(diag);
    case 5: {
      const Tensor scaled = scaled_factor(d);
      const Tensor a = linalg_solve_triangular(d[3], scaled, false);
      return diag_embed(reciprocal(diag)) - matmul(a.transpose(-2, -1), a);
    }
    default:
      return linalg_cholesky(d[4]);
  }
}
Tensor low_rank_half_log_det(const Args& d) {
  return half_log_det(d[3]) + 0.5 * sum(d[2].log(), {-1});
}

// The shares of LogisticNormal.
const TransformRecord& sticks() {
  static const TransformRecord& record = transform_record("StickBreakingTransform");
  return record;
}

}  // namespace

std::span<const DistributionRecord> vector_records() {
  static const DistributionRecord records[] = {
      {.name = "Dirichlet",
       .module = "dirichlet",
       .doc = "Shares that sum to 1 over the last dimension: density prod x_i^(a_i - 1) Gamma(sum a) / prod Gamma(a_i) "
              "(Kotz, Balakrishnan, Johnson, Continuous Multivariate Distributions 1, ch. 49).",
       .parameters = {{"concentration", "The shapes a.", vector_of(positive()), Role::batch, 1}},
       .support = Kind::simplex,
       .has_rsample = true,
       .exponential = true,
       .event_shape = last_of_first,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return strata::dirichlet(d[0].expand(s), g); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor a = d[0];
             return sum(xlogy(a - 1, x), {-1}) + lgamma(sum(a, {-1})) - sum(lgamma(a), {-1});
           },
       .entropy =
           [](const Args& d) {
             const Tensor a = d[0], total = sum(a, {-1});
             return sum(lgamma(a), {-1}) - lgamma(total) - (a.size(-1) - total) * digamma(total) -
                    sum((a - 1) * digamma(a), {-1});
           },
       .mean = [](const Args& d) { return d[0] / sum(d[0], {-1}, true); },
       .mode =
           [](const Args& d) {
             // Where all shapes are below 1 the density grows towards each corner: PyTorch's choice is the first.
             const Tensor a = d[0], over = clamp_min(a - 1, 0);
             const Tensor corner = one_hot(zeros_like(a.select(-1, 0), DType::i64), a.size(-1)).to(a.dtype());
             return where(all(a < 1, {-1}, true), corner, over / sum(over, {-1}, true));
           },
       .variance =
           [](const Args& d) {
             const Tensor a = d[0], total = sum(a, {-1}, true);
             return a * (total - a) / (square(total) * (total + 1));
           }},
      {.name = "LogisticNormal",
       .module = "logistic_normal",
       .doc =
           "Normal numbers made into shares that sum to 1 by stick breaking: n numbers give n + 1 shares (Aitchison, "
           "Shen, \"Logistic-normal distributions\", Biometrika 67, 1980).",
       .parameters = {{"loc", "The means of the numbers.", real(), Role::batch, 1},
                      {"scale", "Their standard deviations.", positive(), Role::batch, 1}},
       .support = Kind::simplex,
       .has_rsample = true,
       .event_shape = [](const Args& d) { return Shape{d[0].size(-1) + 1}; },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             Shape base = s;
             base[base.size() - 1] -= 1;
             return sticks().forward({}, d[0] + d[1] * normal_like(d[0], base, g));
           },
       .log_prob =
           [](const Args& d, const Tensor& y) {
             const Tensor x = sticks().inverse({}, y);
             const Tensor normal = -0.5 * square((x - d[0]) / d[1]) - d[1].log() - 0.5 * kLog2Pi;
             return sum(normal, {-1}) - sticks().log_abs_det({}, x, y);
           }},
      {.name = "RelaxedOneHotCategorical",
       .module = "relaxed_categorical",
       .doc =
           "A vector of zeros and a one made smooth: softmax((logits + Gumbel noise) / temperature) (Maddison, Mnih, "
           "Teh, arXiv:1611.00712; Jang, Gu, Poole, arXiv:1611.01144).",
       .parameters = {{"temperature", "How smooth: 0 would be one class.", positive(), Role::aside},
                      {"probs", "Probabilities, or numbers like them: they are divided by their sum.", Kind::simplex,
                       Role::one_of, 1},
                      {"logits", "Logarithms of them.", vector_of(real()), Role::one_of, 1}},
       .support = Kind::simplex,
       .has_rsample = true,
       .event_shape = [](const Args& d) { return right(d[1].shape(), 1); },
       .adjust = [](size_t i, const Tensor& x) { return i == 0 ? x : class_adjusted(i == 1, x); },
       .derive = [](const Args& d, size_t i) { return class_odds(d, i, 1); },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor noise = -log(exponential_like(d[2], s, g));
             return softmax((d[2] + noise) / d[0], -1);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto k = static_cast<double>(x.size(-1));
             const Tensor y = x.log(), score = d[2] - y * d[0];
             return sum(score - logsumexp(score, {-1}, true) - y, {-1}) + std::lgamma(k) + (k - 1) * d[0].log();
           }},
      {.name = "MultivariateNormal",
       .module = "multivariate_normal",
       .doc = "Normal vectors: a mean and a covariance, a precision or the covariance's Cholesky triangle (Kotz, "
              "Balakrishnan, Johnson, Continuous Multivariate Distributions 1, ch. 45).",
       .parameters = {{"loc", "The mean.", vector_of(real()), Role::batch, 1},
                      {"covariance_matrix", "The covariance.", Kind::positive_definite, Role::one_of, 2},
                      {"precision_matrix", "Its inverse.", Kind::positive_definite, Role::one_of, 2},
                      {"scale_tril", "Its Cholesky triangle.", Kind::lower_cholesky, Role::one_of, 2, {}, true}},
       .support = vector_of(real()),
       .has_rsample = true,
       .event_shape = last_of_first,
       .derive = normal_derived,
       .together =
           [](const Args& d) {
             for (size_t i = 1; i < 4; ++i)
               if (d.given(i)) same_size(d, i, 2);
           },
       .draw = [](const Args& d, const Shape& s, Generator& g) { return d[0] + times(d[3], normal_like(d[0], s, g)); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor z = solved(d[3], x - d[0]);
             return -0.5 * (sum(square(z), {-1}) + static_cast<double>(z.size(-1)) * kLog2Pi) - half_log_det(d[3]);
           },
       .entropy =
           [](const Args& d) { return half_log_det(d[3]) + 0.5 * static_cast<double>(d[0].size(-1)) * (1 + kLog2Pi); },
       .mean = [](const Args& d) { return d[0]; },
       .mode = [](const Args& d) { return d[0]; },
       .variance = [](const Args& d) { return sum(square(d[3]), {-1}); }},
      {.name = "LowRankMultivariateNormal",
       .module = "lowrank_multivariate_normal",
       .doc =
           "Normal vectors whose covariance is W W^T + D, W of few columns and D diagonal: only matrices as large as "
           "the rank are decomposed, by Woodbury's identity (Golub, Van Loan, Matrix Computations, section 2.1.4).",
       .parameters = {{"loc", "The mean.", vector_of(real()), Role::batch, 1},
                      {"cov_factor", "W, with as many columns as the rank.", real().independent(2), Role::batch, 2},
                      {"cov_diag", "The diagonal D.", vector_of(positive()), Role::batch, 1},
                      {"_capacitance_tril",
                       "The Cholesky triangle of I + W^T D^-1 W.",
                       Kind::lower_cholesky,
                       Role::derived,
                       2,
                       {},
                       true},
                      {"covariance_matrix", "W W^T + D.", Kind::positive_definite, Role::derived, 2},
                      {"precision_matrix", "Its inverse.", Kind::positive_definite, Role::derived, 2},
                      {"scale_tril", "Its Cholesky triangle.", Kind::lower_cholesky, Role::derived, 2}},
       .support = vector_of(real()),
       .has_rsample = true,
       .event_shape = last_of_first,
       .derive = low_rank_derived,
       .together =
           [](const Args& d) {
             check(d[1].size(-2) == d[0].size(-1), d.record().name,
                   "cov_factor must be a batch of matrices with shape ", d[0].size(-1), " x m, got ", d[1].shape());
             same_size(d, 2, 1);
           },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const auto [loc, w, diag] = d.first<3>();
             const Shape inner = joined(without_right(s, 1), {w.size(-1)});
             return loc + times(w, normal_like(loc, inner, g)) + sqrt(diag) * normal_like(loc, s, g);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor far = x - d[0], inner = times(scaled_factor(d), far);
             const Tensor size = sum(square(far) / d[2], {-1}) - sum(square(solved(d[3], inner)), {-1});
             return -0.5 * (size + static_cast<double>(far.size(-1)) * kLog2Pi) - low_rank_half_log_det(d);
           },
       .entropy =
           [](const Args& d) {
             return low_rank_half_log_det(d) + 0.5 * static_cast<double>(d[0].size(-1)) * (1 + kLog2Pi);
           },
       .mean = [](const Args& d) { return d[0]; },
       .mode = [](const Args& d) { return d[0]; },
       .variance = [](const Args& d) { return sum(square(d[1]), {-1}) + d[2]; }},
  };
  return records;
}

}  // namespace strata::distributions
