// Distributions over the line.

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;

const Parameter kLoc{"loc", "The middle.", real()};
const Parameter kScale{"scale", "The width.", positive()};

Tensor standard(const Args& d, const Tensor& x) {
  return (x - d[0]) / d[1];
}
Tensor placed(const Args& d, const Tensor& z) {
  return d[0] + d[1] * z;
}
Tensor location(const Args& d) {
  return d[0];
}
Tensor best_fisher(const Args& d, const Shape& shape, Generator& g);

}  // namespace

std::span<const DistributionRecord> line_records() {
  static const DistributionRecord records[] = {
      {.name = "Normal",
       .module = "normal",
       .doc =
           "Normal numbers of mean `loc` and standard deviation `scale`: density exp(-z^2 / 2) / (scale sqrt(2 pi)) "
           "with z = (x - loc) / scale (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 13).",
       .parameters = {kLoc, kScale},
       .support = real(),
       .has_rsample = true,
       .exponential = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return placed(d, normal_like(d[0], s, g)); },
       .log_prob = [](const Args& d,
                      const Tensor& x) { return -0.5 * square(standard(d, x)) - d[1].log() - 0.5 * kLog2Pi; },
       .cdf = [](const Args& d, const Tensor& x) { return ndtr(standard(d, x)); },
       .icdf = [](const Args& d, const Tensor& q) { return placed(d, ndtri(q)); },
       .entropy = [](const Args& d) { return 0.5 + 0.5 * kLog2Pi + d[1].log(); },
       .mean = location,
       .mode = location,
       .variance = [](const Args& d) { return square(d[1]); }},
      {.name = "Laplace",
       .module = "laplace",
       .doc = "Density exp(-|x - loc| / scale) / (2 scale) (Johnson, Kotz, Balakrishnan, Continuous Univariate "
              "Distributions 2, ch. 24).",
       .parameters = {kLoc, kScale},
       .support = real(),
       .has_rsample = true,
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor u = open_uniform_like(d[0], s, g) - 0.5;
             return placed(d, -sign(u) * log1p(-2 * u.abs()));
           },
       .log_prob = [](const Args& d, const Tensor& x) { return -(2 * d[1]).log() - standard(d, x).abs(); },
       .cdf =
           [](const Args& d, const Tensor& x) {
             const Tensor z = standard(d, x);
             return 0.5 - 0.5 * sign(z) * expm1(-z.abs());
           },
       .icdf =
           [](const Args& d, const Tensor& q) {
             const Tensor u = q - 0.5;
             return placed(d, -sign(u) * log1p(-2 * u.abs()));
           },
       .entropy = [](const Args& d) { return 1 + (2 * d[1]).log(); },
       .mean = location,
       .mode = location,
       .variance = [](const Args& d) { return 2 * square(d[1]); }},
      {.name = "Cauchy",
       .module = "cauchy",
       .doc =
           "Density 1 / (pi scale (1 + z^2)) with z = (x - loc) / scale: the tails are so heavy that there is no mean "
           "(Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, ch. 16).",
       .parameters = {kLoc, kScale},
       .support = real(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return placed(d, tan(kPi * (open_uniform_like(d[0], s, g) - 0.5))); },
       .log_prob = [](const Args& d,
                      const Tensor& x) { return -std::log(kPi) - d[1].log() - log1p(square(standard(d, x))); },
       .cdf = [](const Args& d, const Tensor& x) { return atan(standard(d, x)) / kPi + 0.5; },
       .icdf = [](const Args& d, const Tensor& q) { return placed(d, tan(kPi * (q - 0.5))); },
       .entropy = [](const Args& d) { return std::log(4 * kPi) + d[1].log(); },
       .mean = [](const Args& d) { return full_like(d[0], kNaN); },
       .mode = location,
       .variance = [](const Args& d) { return full_like(d[0], kInf); }},
      {.name = "Gumbel",
       .module = "gumbel",
       .doc =
           "The largest of many: density exp(-z - exp(-z)) / scale with z = (x - loc) / scale (Gumbel, Statistics of "
           "Extremes, 1958).",
       .parameters = {kLoc, kScale},
       .support = real(),
       .has_rsample = true,
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return placed(d, -log(exponential_like(d[0], s, g))); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Tensor z = standard(d, x);
             return -z - exp(-z) - d[1].log();
           },
       .cdf = [](const Args& d, const Tensor& x) { return exp(-exp(-standard(d, x))); },
       .icdf = [](const Args& d, const Tensor& q) { return placed(d, -log(-log(q))); },
       .entropy = [](const Args& d) { return d[1].log() + (1 + kEuler); },
       .mean = [](const Args& d) { return d[0] + d[1] * kEuler; },
       .mode = location,
       .variance = [](const Args& d) { return kPi * kPi / 6 * square(d[1]); }},
      {.name = "StudentT",
       .module = "studentT",
       .doc =
           "Student's t: a standard normal number over the root of a chi-squared one by its `df` degrees of freedom, "
           "times `scale`, plus `loc` (Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 2, ch. 28).",
       .parameters = {{"df", "Degrees of freedom.", positive()},
                      {"loc", "The middle.", real(), Role::batch, 0, 0.0},
                      {"scale", "The width.", positive(), Role::batch, 0, 1.0}},
       .support = real(),
       .has_rsample = true,
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const auto [df, loc, scale] = d.first<3>();
             const Tensor squares = 2 * gamma_of(df / 2, s, g);
             return loc + scale * normal_like(loc, s, g) * sqrt(df / squares);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [df, loc, scale] = d.first<3>();
             const Tensor constant = scale.log() + 0.5 * (df * kPi).log() + lgamma(df / 2) - lgamma((df + 1) / 2);
             return -0.5 * (df + 1) * log1p(square((x - loc) / scale) / df) - constant;
           },
       .entropy =
           [](const Args& d) {
             const Tensor df = d[0];
             const Tensor beta = lgamma(0.5 * df) + 0.5 * std::log(kPi) - lgamma(0.5 * (df + 1));
             return d[2].log() + 0.5 * (df + 1) * (digamma(0.5 * (df + 1)) - digamma(0.5 * df)) + 0.5 * df.log() + beta;
           },
       .mean = [](const Args& d) { return where(d[0] > 1, d[1], kNaN); },
       .mode = [](const Args& d) { return d[1]; },
       .variance =
           [](const Args& d) {
             const Tensor df = d[0];
             const Tensor finite = square(d[2]) * df / where(df > 2, df - 2, 1.0);
             return where(df > 2, finite, where(df > 1, full_like(df, kInf), kNaN));
           }},
      {.name = "Uniform",
       .module = "uniform",
       .doc = "Equally likely numbers in [low, high).",
       .parameters = {{"low", "The least number.", Constraint::Kind::dependent},
                      {"high", "The end, above `low`.", Constraint::Kind::dependent}},
       .support = Constraint::Kind::dependent,
       .support_of = [](const Args& d) { return Constraint(Constraint::Kind::interval, d[0], d[1]); },
       .has_rsample = true,
       .together =
           [](const Args& d) {
             check_values(d[0] < d[1], "Uniform", [&] {
               return cat("Uniform is not defined when low >= high: low is ", d[0].to_string(), ", high ",
                          d[1].to_string());
             });
           },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return d[0] + (d[1] - d[0]) * uniform_like(d[0], s, g); },
       .log_prob = [](const Args& d,
                      const Tensor& x) { return where((x >= d[0]) & (x < d[1]), -log(d[1] - d[0]), -kInf); },
       .cdf = [](const Args& d, const Tensor& x) { return ((x - d[0]) / (d[1] - d[0])).clamp(0, 1); },
       .icdf = [](const Args& d, const Tensor& q) { return d[0] + (d[1] - d[0]) * q; },
       .entropy = [](const Args& d) { return log(d[1] - d[0]); },
       .mean = [](const Args& d) { return (d[0] + d[1]) / 2; },
       .mode = [](const Args& d) { return full_like(d[0], kNaN); },
       .variance = [](const Args& d) { return square(d[1] - d[0]) / 12; }},
      {.name = "VonMises",
       .module = "von_mises",
       .doc =
           "Angles around `loc`: density exp(concentration cos(x - loc)) / (2 pi I0(concentration)). Drawn by Best and "
           "Fisher, \"Efficient simulation of the von Mises distribution\", Applied Statistics 28, 1979. The variance "
           "is the circular one, 1 - I1 / I0.",
       .parameters = {{"loc", "The middle angle.", real()},
                      {"concentration", "How narrow it is: about the inverse of the variance.", positive()}},
       .support = real(),
       .draw = best_fisher,
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [loc, k] = d.first<2>();
             return k * (cos(x - loc) - 1) - kLog2Pi - log(i0e(k));
           },
       .entropy =
           [](const Args& d) {
             const Tensor k = d[1];
             return kLog2Pi + log(i0e(k)) + k * (1 - i1e(k) / i0e(k));
           },
       .mean = location,
       .mode = location,
       .variance = [](const Args& d) { return 1 - i1e(d[1]) / i0e(d[1]); }},
  };
  return records;
}

namespace {

// Proposals around a wrapped Cauchy density, until each was accepted.
Tensor best_fisher(const Args& d, const Shape& shape, Generator& g) {
  const Tensor k = d[1].to(DType::f64).expand(shape);
  const Tensor tau = 1 + sqrt(1 + 4 * square(k));
  const Tensor rho = (tau - sqrt(2 * tau)) / (2 * k);
  const Tensor r = where(k < 1e-5, 1 / k + k, (1 + square(rho)) / (2 * rho));
  Tensor x = full_like(k, kNaN), open = isfinite(k) & (k > 0);
  // Two thirds of the proposals or more are taken; the bound is for the reader.
  for (int round = 0; round < 1000 && any(open).item<bool>(); ++round) {
    const Tensor z = cos(kPi * uniform_like(k, shape, g)), u = open_uniform_like(k, shape, g);
    const Tensor side = sign(uniform_like(k, shape, g) - 0.5);
    const Tensor f = (1 + r * z) / (r + z), c = k * (r - f);
    const Tensor good = open & ((c * (2 - c) > u) | (log(c / u) + 1 - c >= 0));
    x = where(good, side * acos(f.clamp(-1, 1)), x);
    open = open & logical_not(good);
  }
  return (remainder(x + kPi + d[0].to(DType::f64), 2 * kPi) - kPi).to(d[0].dtype());
}

}  // namespace

}  // namespace strata::distributions
