// Distributions over positive numbers.

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;
using Kind = Constraint::Kind;

const Parameter kScale{"scale", "The width.", positive()};

// log1p(k z) / k and expm1(k z) / k, z at k = 0: near it by their series, whose slopes in k are right too.
Tensor log_ratio(const Tensor& k, const Tensor& z) {
  const Tensor flat = isclose(k, zeros_like(k)), some = where(flat, 1.0, k);
  return where(flat, z - 0.5 * k * square(z), log1p(some * z) / some);
}
Tensor exp_ratio(const Tensor& k, const Tensor& z) {
  const Tensor flat = isclose(k, zeros_like(k)), some = where(flat, 1.0, k);
  return where(flat, z + 0.5 * k * square(z), expm1(some * z) / some);
}

}  // namespace

std::span<const DistributionRecord> positive_records() {
  static const DistributionRecord gamma{
      .name = "Gamma",
      .module = "gamma",
      .doc =
          "Density rate^a x^(a - 1) exp(-rate x) / Gamma(a) with a = concentration. Gradients through samples are "
          "implicit (Figurnov et al., arXiv:1805.08498).",
      .parameters = {{"concentration", "The shape.", positive()}, {"rate", "The inverse of the scale.", positive()}},
      .support = nonnegative(),
      .has_rsample = true,
      .exponential = true,
      .draw =
          [](const Args& d, const Shape& s, Generator& g) {
            return clamp_min(strata::standard_gamma(d[0].expand(s), g) / d[1], tiny_of(d[0].dtype()));
          },
      .log_prob =
          [](const Args& d, const Tensor& x) {
            const auto [a, rate] = d.first<2>();
            return a * rate.log() + xlogy(a - 1, x) - rate * x - lgamma(a);
          },
      .cdf = [](const Args& d, const Tensor& x) { return igamma(d[0], d[1] * x); },
      .entropy =
          [](const Args& d) {
            const auto [a, rate] = d.first<2>();
            return a - rate.log() + lgamma(a) + (1 - a) * digamma(a);
          },
      .mean = [](const Args& d) { return d[0] / d[1]; },
      .mode = [](const Args& d) { return clamp_min((d[0] - 1) / d[1], 0); },
      .variance = [](const Args& d) { return d[0] / square(d[1]); }};
  static const DistributionRecord records[] = {
      {.name = "LogNormal",
       .module = "log_normal",
       .doc = "exp of normal numbers (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 14).",
       .parameters = {{"loc", "The mean of the logarithms.", real()},
                      {"scale", "Their standard deviation.", positive()}},
       .support = positive(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return exp(d[0] + d[1] * normal_like(d[0], s, g)); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor y = x.log();
             return -0.5 * square((y - d[0]) / d[1]) - d[1].log() - 0.5 * kLog2Pi - y;
           },
       .cdf = [](const Args& d, const Tensor& x) { return ndtr((x.log() - d[0]) / d[1]); },
       .icdf = [](const Args& d, const Tensor& q) { return exp(d[0] + d[1] * ndtri(q)); },
       .entropy = [](const Args& d) { return 0.5 + 0.5 * kLog2Pi + d[1].log() + d[0]; },
       .mean = [](const Args& d) { return exp(d[0] + square(d[1]) / 2); },
       .mode = [](const Args& d) { return exp(d[0] - square(d[1])); },
       .variance = [](const Args& d) { return expm1(square(d[1])) * exp(2 * d[0] + square(d[1])); }},
      {.name = "HalfNormal",
       .module = "half_normal",
       .doc = "Sizes of normal numbers of mean 0 and standard deviation `scale`.",
       .parameters = {kScale},
       .support = nonnegative(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return (d[0] * normal_like(d[0], s, g)).abs(); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             return where(x >= 0, kLn2 - 0.5 * square(x / d[0]) - d[0].log() - 0.5 * kLog2Pi, -kInf);
           },
       .cdf = [](const Args& d, const Tensor& x) { return erf(x / (d[0] * std::sqrt(2.0))); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] * std::sqrt(2.0) * erfinv(q); },
       .entropy = [](const Args& d) { return 0.5 + 0.5 * kLog2Pi - kLn2 + d[0].log(); },
       .mean = [](const Args& d) { return d[0] * std::sqrt(2 / kPi); },
       .mode = [](const Args& d) { return zeros_like(d[0]); },
       .variance = [](const Args& d) { return square(d[0]) * (1 - 2 / kPi); }},
      {.name = "HalfCauchy",
       .module = "half_cauchy",
       .doc = "Sizes of Cauchy's numbers around 0.",
       .parameters = {kScale},
       .support = nonnegative(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return (d[0] * tan(kPi * (open_uniform_like(d[0], s, g) - 0.5))).abs(); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             return where(x >= 0, std::log(2 / kPi) - d[0].log() - log1p(square(x / d[0])), -kInf);
           },
       .cdf = [](const Args& d, const Tensor& x) { return atan(x / d[0]) * (2 / kPi); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] * tan(kPi / 2 * q); },
       .entropy = [](const Args& d) { return std::log(2 * kPi) + d[0].log(); },
       .mean = [](const Args& d) { return full_like(d[0], kInf); },
       .mode = [](const Args& d) { return zeros_like(d[0]); },
       .variance = [](const Args& d) { return full_like(d[0], kInf); }},
      {.name = "Exponential",
       .module = "exponential",
       .doc = "Waiting times at a rate: density rate exp(-rate x).",
       .parameters = {{"rate", "Events for each unit of time.", positive()}},
       .support = nonnegative(),
       .has_rsample = true,
       .exponential = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return exponential_like(d[0], s, g) / d[0]; },
       .log_prob = [](const Args& d, const Tensor& x) { return d[0].log() - d[0] * x; },
       .cdf = [](const Args& d, const Tensor& x) { return -expm1(-d[0] * x); },
       .icdf = [](const Args& d, const Tensor& q) { return -log1p(-q) / d[0]; },
       .entropy = [](const Args& d) { return 1 - d[0].log(); },
       .mean = [](const Args& d) { return reciprocal(d[0]); },
       .mode = [](const Args& d) { return zeros_like(d[0]); },
       .variance = [](const Args& d) { return pow(d[0], -2); }},
      gamma,
      [] {
        DistributionRecord r = gamma;
        r.name = "Chi2";
        r.module = "chi2";
        r.doc = "Sums of `df` squares of standard normal numbers: gamma numbers of concentration df / 2 and rate 1/2.";
        r.parent = "Gamma";
        for (Parameter& p : r.parameters) p.role = Role::derived;
        r.parameters.push_back({"df", "Degrees of freedom.", positive()});
        r.derive = [](const Args& d, size_t i) { return i == 0 ? 0.5 * d[2] : full_like(d[2], 0.5); };
        return r;
      }(),
      {.name = "InverseGamma",
       .module = "inverse_gamma",
       .doc = "Inverses of gamma numbers: density rate^a x^(-a - 1) exp(-rate / x) / Gamma(a) with a = concentration.",
       .parameters = {{"concentration", "The shape.", positive()}, {"rate", "The scale.", positive()}},
       .support = positive(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return d[1] / gamma_of(d[0], s, g); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [a, rate] = d.first<2>();
             return a * rate.log() - (a + 1) * x.log() - rate / x - lgamma(a);
           },
       .cdf = [](const Args& d, const Tensor& x) { return igammac(d[0], d[1] / x); },
       .entropy =
           [](const Args& d) {
             const auto [a, rate] = d.first<2>();
             return a + rate.log() + lgamma(a) - (1 + a) * digamma(a);
           },
       .mean = [](const Args& d) { return where(d[0] > 1, d[1] / where(d[0] > 1, d[0] - 1, 1.0), kInf); },
       .mode = [](const Args& d) { return d[1] / (d[0] + 1); },
       .variance =
           [](const Args& d) {
             const Tensor a = where(d[0] > 2, d[0], 3.0);
             return where(d[0] > 2, square(d[1] / (a - 1)) / (a - 2), kInf);
           }},
      {.name = "FisherSnedecor",
       .module = "fishersnedecor",
       .doc = "Ratios of two chi-squared numbers, each over its degrees of freedom (Johnson, Kotz, Balakrishnan, "
              "Continuous Univariate Distributions 2, ch. 27).",
       .parameters = {{"df1", "Degrees of freedom above.", positive()},
                      {"df2", "Degrees of freedom below.", positive()}},
       .support = positive(),
       .has_rsample = true,
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const auto [df1, df2] = d.first<2>();
             const Tensor above = gamma_of(df1 / 2, s, g) / df1, below = gamma_of(df2 / 2, s, g) / df2;
             const double tiny = tiny_of(df1.dtype());
             return clamp_min(above / clamp_min(below, tiny), tiny);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor a = d[0] / 2, b = d[1] / 2, ratio = d[0] / d[1];
             return a * ratio.log() + (a - 1) * x.log() - (a + b) * log1p(ratio * x) - log_beta(a, b);
           },
       .mean = [](const Args& d) { return where(d[1] > 2, d[1] / (d[1] - 2), kNaN); },
       .mode =
           [](const Args& d) {
             const auto [df1, df2] = d.first<2>();
             return where(df1 > 2, df2 * (df1 - 2) / (df1 * (df2 + 2)), kNaN);
           },
       .variance =
           [](const Args& d) {
             const auto [df1, df2] = d.first<2>();
             return where(df2 > 4, 2 * square(df2) * (df1 + df2 - 2) / (df1 * square(df2 - 2) * (df2 - 4)), kNaN);
           }},
      {.name = "Weibull",
       .module = "weibull",
       .doc =
           "Life times: density k / scale (x / scale)^(k - 1) exp(-(x / scale)^k) with k = concentration (Weibull, \"A "
           "statistical distribution function of wide applicability\", 1951).",
       .parameters = {kScale, {"concentration", "The shape.", positive()}},
       .support = positive(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return d[0] * pow(exponential_like(d[0], s, g), reciprocal(d[1])); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [scale, k] = d.first<2>();
             const Tensor z = x / scale;
             return log(k / scale) + (k - 1) * z.log() - pow(z, k);
           },
       .cdf = [](const Args& d, const Tensor& x) { return -expm1(-pow(x / d[0], d[1])); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] * pow(-log1p(-q), reciprocal(d[1])); },
       .entropy =
           [](const Args& d) {
             const auto [scale, k] = d.first<2>();
             return kEuler * (1 - reciprocal(k)) + log(scale / k) + 1;
           },
       .mean = [](const Args& d) { return d[0] * exp(lgamma(1 + reciprocal(d[1]))); },
       .mode =
           [](const Args& d) {
             const Tensor k = where(d[1] > 1, d[1], 2.0);
             return where(d[1] > 1, d[0] * pow((k - 1) / k, reciprocal(k)), 0.0);
           },
       .variance =
           [](const Args& d) {
             const Tensor r = reciprocal(d[1]);
             return square(d[0]) * (exp(lgamma(1 + 2 * r)) - exp(2 * lgamma(1 + r)));
           }},
      {.name = "Pareto",
       .module = "pareto",
       .doc = "Density alpha scale^alpha / x^(alpha + 1) above `scale` (Johnson, Kotz, Balakrishnan, Continuous "
              "Univariate Distributions 1, ch. 20).",
       .parameters = {{"scale", "The least value.", positive()}, {"alpha", "The shape.", positive()}},
       .support = Kind::dependent,
       .support_of = [](const Args& d) { return Constraint(Kind::greater_than_eq, d[0]); },
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return d[0] * exp(exponential_like(d[0], s, g) / d[1]); },
       .log_prob = [](const Args& d, const Tensor& x) { return d[1].log() + d[1] * d[0].log() - (d[1] + 1) * x.log(); },
       .cdf = [](const Args& d, const Tensor& x) { return 1 - pow(d[0] / x, d[1]); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] * exp(-log1p(-q) / d[1]); },
       .entropy = [](const Args& d) { return log(d[0] / d[1]) + 1 + reciprocal(d[1]); },
       .mean =
           [](const Args& d) {
             const Tensor a = where(d[1] > 1, d[1], 2.0);
             return where(d[1] > 1, a * d[0] / (a - 1), kInf);
           },
       .mode = [](const Args& d) { return d[0]; },
       .variance =
           [](const Args& d) {
             const Tensor a = where(d[1] > 2, d[1], 3.0);
             return where(d[1] > 2, square(d[0] / (a - 1)) * a / (a - 2), kInf);
           }},
      {.name = "GeneralizedPareto",
       .module = "generalized_pareto",
       .doc =
           "What lies beyond a high threshold `loc`: P(X > x) = (1 + k z)^(-1 / k) with z = (x - loc) / scale and k = "
           "concentration, exp(-z) for k = 0 (Pickands, \"Statistical inference using extreme order statistics\", "
           "1975).",
       .parameters = {{"loc", "The threshold.", real()}, kScale, {"concentration", "The shape.", real()}},
       .support = Kind::dependent,
       .support_of =
           [](const Args& d) {
             const auto [loc, scale, k] = d.first<3>();
             const Tensor end = where(k < 0, loc - scale / where(k < 0, k, -1.0), kInf);
             return Constraint(Kind::interval, loc, end);
           },
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return d[0] + d[1] * exp_ratio(d[2], exponential_like(d[0], s, g)); },
       .log_prob = [](const Args& d,
                      const Tensor& x) { return -(1 + d[2]) * log_ratio(d[2], (x - d[0]) / d[1]) - d[1].log(); },
       .cdf = [](const Args& d, const Tensor& x) { return -expm1(-log_ratio(d[2], (x - d[0]) / d[1])); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] + d[1] * exp_ratio(d[2], -log1p(-q)); },
       .entropy = [](const Args& d) { return d[1].log() + d[2] + 1; },
       .mean =
           [](const Args& d) {
             const Tensor k = where(d[2] < 1, d[2], 0.0);
             return where(d[2] < 1, d[0] + d[1] / (1 - k), kInf);
           },
       .mode = [](const Args& d) { return d[0]; },
       .variance =
           [](const Args& d) {
             const Tensor k = where(d[2] < 0.5, d[2], 0.0);
             return where(d[2] < 0.5, square(d[1] / (1 - k)) / (1 - 2 * k), kInf);
           }},
  };
  return records;
}

}  // namespace strata::distributions
