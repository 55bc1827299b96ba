// Divergences of two families. With H the entropy of p, each is -H less the mean over p of log q: what differs are
// moments.

#include "strata/distributions/composed.h"
#include "strata/distributions/formulas_inl.h"
#include "strata/distributions/transform.h"

namespace strata::distributions {
namespace {

using Pair = Tensor (*)(const Args& p, const Args& q);

Tensor entropy(const Args& p) {
  return p.record().entropy(p);
}
Tensor mean(const Args& p) {
  return p.record().mean(p);
}
Tensor variance(const Args& p) {
  return p.record().variance(p);
}

// The mean of log(x) between two ends.
Tensor mean_log(const Tensor& low, const Tensor& high) {
  return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1;
}

// ---- from anything with moments ----

Tensor to_normal(const Args& p, const Args& q) {
  const auto [loc, scale] = q.first<2>();
  return -entropy(p) + 0.5 * kLog2Pi + scale.log() + (variance(p) + square(mean(p) - loc)) / (2 * square(scale));
}
Tensor to_exponential(const Args& p, const Args& q) {
  return -entropy(p) - q[0].log() + q[0] * mean(p);
}
Tensor to_gamma(const Args& p, const Args& q, const Tensor& log_mean) {
  const auto [a, rate] = q.first<2>();
  return -entropy(p) + lgamma(a) - a * rate.log() - (a - 1) * log_mean + rate * mean(p);
}
// `generating` is the mean of exp(-x / scale).
Tensor to_gumbel(const Args& p, const Args& q, const Tensor& generating) {
  const auto [loc, scale] = q.first<2>();
  return -entropy(p) + scale.log() + (mean(p) - loc) / scale + exp(loc / scale) * generating;
}
// The density of ContinuousBernoulli is that at 0 times exp(x logits).
Tensor to_continuous_bernoulli(const Args& p, const Args& q) {
  return -entropy(p) - mean(p) * q[1] - q.record().log_prob(q, zeros_like(q[0]));
}
Tensor to_uniform(const Args& p, const Args& q) {
  return where((q[0] > 0) | (q[1] < 1), kInf, -entropy(p) + log(q[1] - q[0]));
}
// Inside is infinite elsewhere.
Tensor inside(const Tensor& good, const Tensor& value) {
  return where(good, value, kInf);
}

// ---- between two of a family ----

Tensor normals(const Args& p, const Args& q) {
  const Tensor ratio = square(p[1] / q[1]);
  return 0.5 * (ratio + square((p[0] - q[0]) / q[1]) - 1 - ratio.log());
}
Tensor gammas(const Args& p, const Args& q) {
  const Tensor a = p[0], b = q[0];
  return b * log(p[1] / q[1]) + lgamma(b) - lgamma(a) + (a - b) * digamma(a) + (q[1] - p[1]) * (a / p[1]);
}
template <size_t probs>
Tensor choices(const Args& p, const Args& q) {
  const Tensor t = where(q[probs] == 0, kInf, p[probs] * (p[probs + 1] - q[probs + 1]));
  return sum(where(p[probs] == 0, 0.0, t), {-1});
}
// Of normal vectors, `i` and `j` being where their Cholesky triangles are.
template <size_t i, size_t j>
Tensor vectors(const Args& p, const Args& q) {
  const int64_t n = p[0].size(-1);
  const Tensor a = p[i], b = q[j];
  const Shape batch = broadcast_shapes(p.batch_shape(), q.batch_shape(), "kl_divergence");
  const Tensor triangle = b.expand(joined(batch, {n, n}));
  const Tensor spread = linalg_solve_triangular(triangle, a.expand(triangle.shape()), false);
  const Tensor apart = solved(b, q[0] - p[0]);
  return half_log_det(b) - half_log_det(a) +
         0.5 * (sum(square(spread), {-2, -1}) + sum(square(apart), {-1}) - static_cast<double>(n));
}

const DivergenceRecord kAll[] = {
    {"Normal", "Normal", normals},
    {"LogNormal", "LogNormal", normals},
    {"HalfNormal", "HalfNormal",
     [](const Args& p, const Args& q) {
       const Tensor ratio = square(p[0] / q[0]);
       return 0.5 * (ratio - 1 - ratio.log());
     }},
    {"Laplace", "Laplace",
     [](const Args& p, const Args& q) {
       const Tensor ratio = p[1] / q[1], far = (p[0] - q[0]).abs();
       return -ratio.log() + far / q[1] + ratio * exp(-far / p[1]) - 1;
     }},
    {"Cauchy", "Cauchy",
     [](const Args& p, const Args& q) {
       return log(square(p[1] + q[1]) + square(p[0] - q[0])) - log(4 * p[1] * q[1]);
     }},
    {"Gumbel", "Gumbel",
     [](const Args& p, const Args& q) {
       const Tensor ratio = p[1] / q[1], apart = (p[0] - q[0]) / q[1];
       return -ratio.log() + apart + ratio * kEuler + exp(lgamma(1 + ratio) - apart) - (1 + kEuler);
     }},
    {"Uniform", "Uniform",
     [](const Args& p, const Args& q) {
       return inside((q[0] <= p[0]) & (p[1] <= q[1]), log((q[1] - q[0]) / (p[1] - p[0])));
     }},
    {"Exponential", "Exponential",
     [](const Args& p, const Args& q) {
       const Tensor ratio = q[0] / p[0];
       return ratio - 1 - ratio.log();
     }},
    {"Gamma", "Gamma", gammas},
    {"InverseGamma", "InverseGamma", gammas},
    {"Pareto", "Pareto",
     [](const Args& p, const Args& q) {
       const Tensor ratio = q[1] / p[1];
       return inside(p[0] >= q[0], q[1] * log(p[0] / q[0]) - ratio.log() + ratio - 1);
     }},
    {"Beta", "Beta",
     [](const Args& p, const Args& q) {
       const Tensor total = p[0] + p[1];
       return log_beta(q[0], q[1]) - log_beta(p[0], p[1]) + (p[0] - q[0]) * digamma(p[0]) +
              (p[1] - q[1]) * digamma(p[1]) + (q[0] + q[1] - total) * digamma(total);
     }},
    {"ContinuousBernoulli", "ContinuousBernoulli",
     [](const Args& p, const Args& q) { return to_continuous_bernoulli(p, q); }},
    {"Dirichlet", "Dirichlet",
     [](const Args& p, const Args& q) {
       const Tensor a = p[0], b = q[0], total = sum(a, {-1});
       return lgamma(total) - lgamma(sum(b, {-1})) - sum(lgamma(a) - lgamma(b), {-1}) +
              sum((a - b) * (digamma(a) - digamma(total).unsqueeze(-1)), {-1});
     }},
    {"MultivariateNormal", "MultivariateNormal", vectors<3, 3>},
    {"MultivariateNormal", "LowRankMultivariateNormal", vectors<3, 6>},
    {"LowRankMultivariateNormal", "MultivariateNormal", vectors<6, 3>},
    {"LowRankMultivariateNormal", "LowRankMultivariateNormal", vectors<6, 6>},
    {"Wishart", "Wishart",
     [](const Args& p, const Args& q) {
       const Tensor m = p[0], n = q[0], a = p[3], b = q[3];
       const int64_t size = a.size(-1);
       const Shape batch = broadcast_shapes(p.batch_shape(), q.batch_shape(), "kl_divergence");
       const Tensor triangle = b.expand(joined(batch, {size, size}));
       const Tensor spread = linalg_solve_triangular(triangle, a.expand(triangle.shape()), false);
       Tensor psi = zeros_like(m);
       for (int64_t i = 0; i < size; ++i) psi = psi + digamma(m / 2 - 0.5 * static_cast<double>(i));
       return n * (half_log_det(b) - half_log_det(a)) + m / 2 * (sum(square(spread), {-2, -1}) - size) +
              mvlgamma(n / 2, size) - mvlgamma(m / 2, size) + (m - n) / 2 * psi;
     }},
    {"Bernoulli", "Bernoulli",
     [](const Args& p, const Args& q) {
       const Tensor one = where(q[0] == 0, kInf, p[0] * (softplus(-q[1]) - softplus(-p[1])));
       const Tensor none = where(q[0] == 1, kInf, (1 - p[0]) * (softplus(q[1]) - softplus(p[1])));
       return where(p[0] == 0, 0.0, one) + where(p[0] == 1, 0.0, none);
     }},
    {"Geometric", "Geometric", [](const Args& p, const Args& q) { return -entropy(p) - log1p(-q[0]) / p[0] - q[1]; }},
    {"Poisson", "Poisson",
     [](const Args& p, const Args& q) { return xlogy(p[0], p[0]) - xlogy(p[0], q[0]) - (p[0] - q[0]); }},
    {"Binomial", "Binomial",
     [](const Args& p, const Args& q) {
       if (any(p[0] < q[0]).item<bool>())
         throw NotDefined("kl_divergence",
                          "KL between Binomials where q.total_count > p.total_count is not implemented");
       const Tensor value = p[0] * (p[1] * (p[2] - q[2]) + log1p(-p[1]) - log1p(-q[1]));
       return inside(p[0] <= q[0], value);
     }},
    {"Categorical", "Categorical", choices<0>},
    {"OneHotCategorical", "OneHotCategorical", choices<0>},

    {"Normal", "Gumbel",
     [](const Args& p, const Args& q) { return to_gumbel(p, q, exp(-p[0] / q[1] + square(p[1] / q[1]) / 2)); }},
    {"Normal", "Laplace",
     [](const Args& p, const Args& q) {
       const Tensor apart = p[0] - q[0], far = apart / p[1];
       const Tensor size = std::sqrt(2 / kPi) * p[1] * exp(-0.5 * square(far)) + apart * erf(std::sqrt(0.5) * far);
       return -log(p[1] / q[1]) + size / q[1] - 0.5 * (1 + std::log(kPi / 2));
     }},
    {"Laplace", "Normal", to_normal},
    {"Gumbel", "Normal", to_normal},
    {"Gamma", "Normal", to_normal},
    {"Gamma", "Exponential", to_exponential},
    {"Gamma", "Gumbel",
     [](const Args& p, const Args& q) { return to_gumbel(p, q, exp(-p[0] * log1p(1 / (p[1] * q[1])))); }},
    {"Exponential", "Normal", to_normal},
    {"Exponential", "Gamma", [](const Args& p, const Args& q) { return to_gamma(p, q, -kEuler - p[0].log()); }},
    {"Exponential", "Gumbel", [](const Args& p, const Args& q) { return to_gumbel(p, q, p[0] / (p[0] + 1 / q[1])); }},
    {"Beta", "Normal", to_normal},
    {"Beta", "Exponential", to_exponential},
    {"Beta", "Gamma",
     [](const Args& p, const Args& q) { return to_gamma(p, q, digamma(p[0]) - digamma(p[0] + p[1])); }},
    {"Beta", "ContinuousBernoulli", to_continuous_bernoulli},
    {"Beta", "Uniform", to_uniform},
    {"ContinuousBernoulli", "Normal", to_normal},
    {"ContinuousBernoulli", "Exponential", to_exponential},
    {"ContinuousBernoulli", "Uniform", to_uniform},
    {"Pareto", "Normal", to_normal},
    {"Pareto", "Exponential", to_exponential},
    {"Pareto", "Gamma", [](const Args& p, const Args& q) { return to_gamma(p, q, p[0].log() + reciprocal(p[1])); }},
    {"Uniform", "Normal", to_normal},
    {"Uniform", "Exponential", [](const Args& p, const Args& q) { return inside(p[0] >= 0, to_exponential(p, q)); }},
    {"Uniform", "Gamma",
     [](const Args& p, const Args& q) { return inside(p[0] >= 0, to_gamma(p, q, mean_log(p[0], p[1]))); }},
    {"Uniform", "Gumbel",
     [](const Args& p, const Args& q) {
       const Tensor scale = q[1];
       return to_gumbel(p, q, scale * (exp(-p[0] / scale) - exp(-p[1] / scale)) / (p[1] - p[0]));
     }},
    {"Uniform", "Beta",
     [](const Args& p, const Args& q) {
       const Tensor value = log_beta(q[0], q[1]) - log(p[1] - p[0]) - (q[0] - 1) * mean_log(p[0], p[1]) -
                            (q[1] - 1) * mean_log(1 - p[1], 1 - p[0]);
       return inside((p[0] >= 0) & (p[1] <= 1), value);
     }},
    {"Uniform", "ContinuousBernoulli",
     [](const Args& p, const Args& q) { return inside((p[0] >= 0) & (p[1] <= 1), to_continuous_bernoulli(p, q)); }},
    {"Uniform", "Pareto",
     [](const Args& p, const Args& q) {
       const Tensor value = -entropy(p) - q[1].log() - q[1] * q[0].log() + (q[1] + 1) * mean_log(p[0], p[1]);
       return inside(p[0] >= q[0], value);
     }},
    {"Bernoulli", "Poisson", [](const Args& p, const Args& q) { return -entropy(p) - (p[0] * q[0].log() - q[0]); }},

    {"Beta", "Pareto", nullptr},
    {"ContinuousBernoulli", "Pareto", nullptr},
    {"Exponential", "Beta", nullptr},
    {"Exponential", "ContinuousBernoulli", nullptr},
    {"Exponential", "Pareto", nullptr},
    {"Exponential", "Uniform", nullptr},
    {"Gamma", "Beta", nullptr},
    {"Gamma", "ContinuousBernoulli", nullptr},
    {"Gamma", "Pareto", nullptr},
    {"Gamma", "Uniform", nullptr},
    {"Gumbel", "Beta", nullptr},
    {"Gumbel", "ContinuousBernoulli", nullptr},
    {"Gumbel", "Exponential", nullptr},
    {"Gumbel", "Gamma", nullptr},
    {"Gumbel", "Pareto", nullptr},
    {"Gumbel", "Uniform", nullptr},
    {"Laplace", "Beta", nullptr},
    {"Laplace", "ContinuousBernoulli", nullptr},
    {"Laplace", "Exponential", nullptr},
    {"Laplace", "Gamma", nullptr},
    {"Laplace", "Pareto", nullptr},
    {"Laplace", "Uniform", nullptr},
    {"Normal", "Beta", nullptr},
    {"Normal", "ContinuousBernoulli", nullptr},
    {"Normal", "Exponential", nullptr},
    {"Normal", "Gamma", nullptr},
    {"Normal", "Pareto", nullptr},
    {"Normal", "Uniform", nullptr},
    {"Pareto", "Beta", nullptr},
    {"Pareto", "ContinuousBernoulli", nullptr},
    {"Pareto", "Uniform", nullptr},
    {"Poisson", "Bernoulli", nullptr},
    {"Poisson", "Binomial", nullptr},
};

Tensor of_records(const DivergenceRecord& rule, const Args& p, const Args& q) {
  if (rule.value) return rule.value(p, q);
  const Shape batch = broadcast_shapes(p.batch_shape(), q.batch_shape(), "kl_divergence");
  const Tensor like = p[0];
  const DeviceScope at(like.device());
  return strata::full(batch, kInf, like.dtype());
}

}  // namespace

std::span<const DivergenceRecord> divergence_records() {
  return kAll;
}

Tensor kl_divergence(const Distribution& p, const Distribution& q) {
  if (const auto* a = dynamic_cast<const RecordedDistribution*>(&p.base()))
    if (const auto* b = dynamic_cast<const RecordedDistribution*>(&q.base()))
      if (const DivergenceRecord* rule = divergence_record(a->args().record(), b->args().record()))
        return of_records(*rule, a->args(), b->args());
  if (const auto* a = dynamic_cast<const IndependentDistribution*>(&p.base()))
    if (const auto* b = dynamic_cast<const IndependentDistribution*>(&q.base()); b && a->joined() == b->joined())
      return sum_right(kl_divergence(a->inner(), b->inner()), a->joined());
  if (const auto* a = dynamic_cast<const TransformedDistribution*>(&p.base()))
    if (const auto* b = dynamic_cast<const TransformedDistribution*>(&q.base());
        b && p.event_shape() == q.event_shape() && a->transforms() == b->transforms())
      return kl_divergence(a->inner(), b->inner());
  throw NotDefined("kl_divergence",
                   cat("No KL(p || q) is implemented for p type ", p.name(), " and q type ", q.name()));
}

}  // namespace strata::distributions
