// Distributions over shares between 0 and 1.

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;

// Near a probability of one half the formulas of ContinuousBernoulli are 0 / 0: there, between `lims`, a few terms of
// their series.
struct Continuous {
  Tensor edge, cut, apart;  // far enough from one half; the probability there, another elsewhere; p - 1/2
  explicit Continuous(const Args& d) {
    const Tensor low = d[2].select(0, 0), high = d[2].select(0, 1);
    const double eps = eps_of(d[0].dtype());
    const Tensor p = d[0].clamp(eps, 1 - eps);
    edge = (p <= low) | (p > high);
    cut = where(edge, p, low);
    apart = p - 0.5;
  }
  Tensor log_norm() const {
    const Tensor low = cut <= 0.5, below = where(low, cut, 0.0), above = where(low, 1.0, cut);
    const Tensor far = log((log1p(-cut) - cut.log()).abs()) - where(low, log1p(-2 * below), log(2 * above - 1));
    const Tensor x = square(apart);
    return where(edge, far, kLn2 + (4.0 / 3.0 + 104.0 / 45.0 * x) * x);
  }
  Tensor mean() const {
    const Tensor far = cut / (2 * cut - 1) + 1 / (log1p(-cut) - cut.log());
    return where(edge, far, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * square(apart)) * apart);
  }
  Tensor variance() const {
    const Tensor far = cut * (cut - 1) / square(1 - 2 * cut) + 1 / square(log1p(-cut) - cut.log());
    const Tensor x = square(apart);
    return where(edge, far, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x);
  }
  Tensor inverse(const Tensor& q) const {
    const Tensor far = (log1p(-cut + q * (2 * cut - 1)) - log1p(-cut)) / (cut.log() - log1p(-cut));
    return where(edge, far, q);
  }
};

// log(1 - x^a), whose moments have closed forms: the n-th one of Kumaraswamy's distribution.
Tensor kumaraswamy_moment(const Args& d, double n) {
  const auto [a, b] = d.first<2>();
  const Tensor above = 1 + n / a;
  return exp(b.log() + lgamma(above) + lgamma(b) - lgamma(above + b));
}

}  // namespace

std::span<const DistributionRecord> unit_records() {
  static const DistributionRecord records[] = {
      {.name = "Beta",
       .module = "beta",
       .doc =
           "Shares in (0, 1): density x^(a - 1) (1 - x)^(b - 1) / B(a, b) with a = concentration1, b = concentration0 "
           "(Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 2, ch. 25).",
       .parameters = {{"concentration1", "The shape at 0: large for shares near 1.", positive()},
                      {"concentration0", "The shape at 1: large for shares near 0.", positive()}},
       .support = unit_interval(),
       .has_rsample = true,
       .exponential = true,
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor both = stack({d[0].expand(s), d[1].expand(s)}, -1);
             return strata::dirichlet(both, g).select(-1, 0);
           },
       .log_prob = [](const Args& d,
                      const Tensor& x) { return xlogy(d[0] - 1, x) + xlog1py(d[1] - 1, -x) - log_beta(d[0], d[1]); },
       .entropy =
           [](const Args& d) {
             const auto [a, b] = d.first<2>();
             const Tensor total = a + b;
             return log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (total - 2) * digamma(total);
           },
       .mean = [](const Args& d) { return d[0] / (d[0] + d[1]); },
       .mode =
           [](const Args& d) {
             // Where both shapes are below 1 the density grows towards both ends: PyTorch's choice is 1.
             const auto [a, b] = d.first<2>();
             const Tensor over = clamp_min(a - 1, 0), under = clamp_min(b - 1, 0);
             return where((a < 1) & (b < 1), 1.0, over / (over + under));
           },
       .variance =
           [](const Args& d) {
             const Tensor total = d[0] + d[1];
             return d[0] * d[1] / (square(total) * (total + 1));
           }},
      {.name = "Kumaraswamy",
       .module = "kumaraswamy",
       .doc =
           "Shares like Beta's with closed forms: density a b x^(a - 1) (1 - x^a)^(b - 1) with a = concentration1, b = "
           "concentration0 (Kumaraswamy, \"A generalized probability density function for double-bounded random "
           "processes\", 1980).",
       .parameters = {{"concentration1", "The power of x.", positive()},
                      {"concentration0", "The power of 1 - x^a.", positive()}},
       .support = unit_interval(),
       .has_rsample = true,
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor log_left = -exponential_like(d[0], s, g) / d[1];
             const double eps = eps_of(d[0].dtype());
             return pow((-expm1(log_left)).clamp(tiny_of(d[0].dtype()), 1 - eps / 2), reciprocal(d[0]));
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [a, b] = d.first<2>();
             return log(a * b) + xlogy(a - 1, x) + xlog1py(b - 1, -pow(x, a));
           },
       .cdf = [](const Args& d, const Tensor& x) { return -expm1(d[1] * log1p(-pow(x, d[0]))); },
       .icdf = [](const Args& d, const Tensor& q) { return pow(-expm1(log1p(-q) / d[1]), reciprocal(d[0])); },
       .entropy =
           [](const Args& d) {
             const auto [a, b] = d.first<2>();
             return 1 - reciprocal(b) + (1 - reciprocal(a)) * (digamma(b + 1) + kEuler) - log(a) - log(b);
           },
       .mean = [](const Args& d) { return kumaraswamy_moment(d, 1); },
       .mode =
           [](const Args& d) {
             const auto [a, b] = d.first<2>();
             const Tensor inner = (a >= 1) & (b >= 1) & (a * b > 1);
             const Tensor share = where(inner, (a - 1) / where(inner, a * b - 1, 1.0), 1.0);
             return where(inner, pow(share, reciprocal(a)), kNaN);
           },
       .variance = [](const Args& d) { return kumaraswamy_moment(d, 2) - square(kumaraswamy_moment(d, 1)); }},
      {.name = "ContinuousBernoulli",
       .module = "continuous_bernoulli",
       .doc = "Bernoulli's probability as a density over [0, 1]: C(p) p^x (1 - p)^(1 - x) (Loaiza-Ganem, Cunningham, "
              "arXiv:1907.06845).",
       .parameters = {{"probs", "The probability p.", unit_interval(), Role::one_of},
                      {"logits", "log(p / (1 - p)).", real(), Role::one_of},
                      {.name = "lims",
                       .doc = "Between which p the formulas, which are 0 / 0 at one half, give way to their series.",
                       .constraint = unit_interval(),
                       .role = Role::pair,
                       .fallback_pair = {{0.499, 0.501}}}},
       .support = unit_interval(),
       .has_rsample = true,
       .exponential = true,
       .derive = [](const Args& d, size_t i) { return odds(d, i, 0); },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return Continuous(d).inverse(open_uniform_like(d[0], s, g)); },
       .log_prob = [](const Args& d, const Tensor& x) { return x * d[1] - softplus(d[1]) + Continuous(d).log_norm(); },
       .cdf =
           [](const Args& d, const Tensor& x) {
             const Continuous c(d);
             const Tensor far = (pow(c.cut, x) * pow(1 - c.cut, 1 - x) + c.cut - 1) / (2 * c.cut - 1);
             return where(c.edge, far, x).clamp(0, 1);
           },
       .icdf = [](const Args& d, const Tensor& q) { return Continuous(d).inverse(q); },
       .entropy =
           [](const Args& d) {
             const Continuous c(d);
             return softplus(d[1]) - c.log_norm() - c.mean() * d[1];
           },
       .mean = [](const Args& d) { return Continuous(d).mean(); },
       .variance = [](const Args& d) { return Continuous(d).variance(); }},
      {.name = "RelaxedBernoulli",
       .module = "relaxed_bernoulli",
       .doc = "Bernoulli's 0 and 1 made smooth: sigmoid((logits + logistic noise) / temperature) (Maddison, Mnih, Teh, "
              "arXiv:1611.00712; Jang, Gu, Poole, arXiv:1611.01144).",
       .parameters = {{"temperature", "How smooth: 0 would be Bernoulli's.", positive(), Role::aside},
                      {"probs", "The probability of 1.", unit_interval(), Role::one_of},
                      {"logits", "log(p / (1 - p)).", real(), Role::one_of}},
       .support = unit_interval(),
       .has_rsample = true,
       .derive = [](const Args& d, size_t i) { return odds(d, i, 1); },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const Tensor u = open_uniform_like(d[2], s, g);
             const double eps = eps_of(u.dtype());
             return sigmoid((d[2] + u.log() - log1p(-u)) / d[0]).clamp(tiny_of(u.dtype()), 1 - eps);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const double eps = eps_of(x.dtype());
             const Tensor inner = x.clamp(tiny_of(x.dtype()), 1 - eps), y = inner.log() - log1p(-inner);
             const Tensor apart = d[2] - y * d[0];
             return d[0].log() + apart - 2 * softplus(apart) + softplus(y) + softplus(-y);
           }},
  };
  return records;
}

}  // namespace strata::distributions
