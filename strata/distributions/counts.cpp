// Distributions over whole numbers.

#include "strata/distributions/distribution.h"
#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;
using Kind = Constraint::Kind;

const Parameter kProbs{"probs", "The probability.", unit_interval(), Role::one_of};
const Parameter kLogits{"logits", "log(p / (1 - p)).", real(), Role::one_of};

// Of both outcomes: softplus(logit) - p logit.
Tensor outcome_entropy(const Tensor& probs, const Tensor& logits) {
  return softplus(logits) - probs * logits;
}
Tensor log_choices(const Tensor& n, const Tensor& x) {
  return lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1);
}
Tensor binomial_log_prob(const Args& d, const Tensor& x) {
  const auto [n, probs, logits] = d.first<3>();
  return log_choices(n, x) + x * logits - n * softplus(logits);
}
// All counts up to the trials, which must be the same everywhere.
Tensor binomial_values(const Args& d) {
  const Tensor n = d[0];
  const double most = n.numel() ? n.max().item<double>() : 0;
  if (n.numel() && n.min().item<double>() != most)
    throw NotDefined("Binomial", "Inhomogeneous total count not supported by `enumerate_support`.");
  return beside_batch(d, counts_like(n, 0, static_cast<int64_t>(most) + 1));
}

}  // namespace

std::span<const DistributionRecord> count_records() {
  static const DistributionRecord records[] = {
      {.name = "Bernoulli",
       .module = "bernoulli",
       .doc = "1 with a probability, else 0.",
       .parameters = {kProbs, kLogits},
       .support = Kind::boolean,
       .exponential = true,
       .derive = [](const Args& d, size_t i) { return odds(d, i, 0); },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return (uniform_like(d[0], s, g) < d[0]).to(d[0].dtype()); },
       .log_prob = [](const Args& d, const Tensor& x) { return x * d[1] - softplus(d[1]); },
       .entropy = [](const Args& d) { return outcome_entropy(d[0], d[1]); },
       .mean = [](const Args& d) { return d[0]; },
       .mode = [](const Args& d) { return where(d[0] == 0.5, kNaN, (d[0] > 0.5).to(d[0].dtype())); },
       .variance = [](const Args& d) { return d[0] * (1 - d[0]); },
       .enumerate = [](const Args& d) { return beside_batch(d, counts_like(d[0], 0, 2)); }},
      {.name = "Geometric",
       .module = "geometric",
       .doc = "Failures before the first success (Johnson, Kemp, Kotz, Univariate Discrete Distributions, ch. 5).",
       .parameters = {kProbs, kLogits},
       .support = nonnegative_integer(),
       .derive = [](const Args& d, size_t i) { return odds(d, i, 0); },
       .together =
           [](const Args& d) {
             if (d.given(0))
               check_values(d[0] > 0, "Geometric", [&] {
                 return cat("Expected parameter probs (Tensor of shape ", d[0].shape(),
                            ") to be positive, but found invalid values:\n", d[0].to_string());
               });
           },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return floor(-exponential_like(d[0], s, g) / log1p(-d[0])); },
       .log_prob = [](const Args& d, const Tensor& x) { return xlog1py(x, -d[0]) + d[0].log(); },
       .entropy = [](const Args& d) { return outcome_entropy(d[0], d[1]) / d[0]; },
       .mean = [](const Args& d) { return reciprocal(d[0]) - 1; },
       .mode = [](const Args& d) { return zeros_like(d[0]); },
       .variance = [](const Args& d) { return (reciprocal(d[0]) - 1) / d[0]; }},
      {.name = "Poisson",
       .module = "poisson",
       .doc =
           "Numbers of events at a rate: probability rate^x exp(-rate) / x! (Johnson, Kemp, Kotz, Univariate Discrete "
           "Distributions, ch. 4).",
       .parameters = {{"rate", "The events that are expected.", nonnegative()}},
       .support = nonnegative_integer(),
       .exponential = true,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return strata::poisson(d[0].expand(s), g); },
       .log_prob = [](const Args& d, const Tensor& x) { return xlogy(x, d[0]) - d[0] - lgamma(x + 1); },
       .mean = [](const Args& d) { return d[0]; },
       .mode = [](const Args& d) { return floor(d[0]); },
       .variance = [](const Args& d) { return d[0]; }},
      {.name = "Binomial",
       .module = "binomial",
       .doc = "Successes of `total_count` trials (Johnson, Kemp, Kotz, Univariate Discrete Distributions, ch. 3).",
       .parameters = {{"total_count", "The trials.", nonnegative_integer(), Role::batch, 0, 1.0}, kProbs, kLogits},
       .support = Kind::dependent,
       .support_of = [](const Args& d) { return Constraint(Kind::integer_interval, 0.0, d[0]); },
       .derive = [](const Args& d, size_t i) { return odds(d, i, 1); },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return strata::binomial(d[0].expand(s), d[1].expand(s), g); },
       .log_prob = binomial_log_prob,
       .entropy =
           [](const Args& d) {
             const Tensor logs = binomial_log_prob(d, binomial_values(d));
             return -sum(exp(logs) * logs, {0});
           },
       .mean = [](const Args& d) { return d[0] * d[1]; },
       .mode = [](const Args& d) { return minimum(floor((d[0] + 1) * d[1]), d[0]); },
       .variance = [](const Args& d) { return d[0] * d[1] * (1 - d[1]); },
       .enumerate = binomial_values},
      {.name = "NegativeBinomial",
       .module = "negative_binomial",
       .doc = "Successes before `total_count` failures: Poisson's numbers at a gamma-distributed rate (Johnson, Kemp, "
              "Kotz, Univariate Discrete Distributions, ch. 5).",
       .parameters = {{"total_count", "The failures.", nonnegative()},
                      {"probs", "The probability of success.", {Kind::half_open_interval, 0.0, 1.0}, Role::one_of},
                      kLogits},
       .support = nonnegative_integer(),
       .derive = [](const Args& d, size_t i) { return odds(d, i, 1); },
       .draw = [](const Args& d, const Shape& s,
                  Generator& g) { return strata::poisson(strata::standard_gamma(d[0].expand(s), g) * exp(d[2]), g); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const auto [n, probs, logits] = d.first<3>();
             const Tensor plain = n * logsigmoid(-logits) + x * logsigmoid(logits);
             return plain + where(n + x == 0, 0.0, lgamma(n + x) - lgamma(x + 1) - lgamma(n));
           },
       .mean = [](const Args& d) { return d[0] * exp(d[2]); },
       .mode = [](const Args& d) { return clamp_min(floor((d[0] - 1) * exp(d[2])), 0); },
       .variance = [](const Args& d) { return d[0] * exp(d[2]) / sigmoid(-d[2]); }},
  };
  return records;
}

}  // namespace strata::distributions
