// Choices among classes.

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;
using Kind = Constraint::Kind;

const Parameter kProbs{"probs", "Probabilities [.., classes], or numbers like them: they are divided by their sum.",
                       Kind::simplex, Role::one_of, 1};
const Parameter kLogits{"logits", "Logarithms of them.", real().independent(1), Role::one_of, 1};

// The number of classes, of the parameters probs and probs + 1.
int64_t classes(const Args& d, size_t probs = 0) {
  return d[d.given(probs) ? probs : probs + 1].size(-1);
}
Shape one_each(const Args& d) {
  return {classes(d)};
}
Tensor adjusted(size_t i, const Tensor& x) {
  return class_adjusted(i == 0, x);
}
Tensor derived(const Args& d, size_t i) {
  return class_odds(d, i, 0);
}
Tensor entropy_of(const Tensor& probs, const Tensor& logits) {
  return -sum(clamp_min(logits, lowest_of(logits.dtype())) * probs, {-1});
}

// x log p; 0 where x is.
Tensor weighted(const Tensor& x, const Tensor& logits) {
  return x * where((x == 0) & isneginf(logits), 0.0, logits);
}

// `draws` choices for each row of the batch, [rows, draws].
Tensor choices(const Tensor& probs, int64_t draws, Generator& g) {
  const Tensor rows = probs.detach().reshape({probs.numel() / probs.size(-1), probs.size(-1)});
  return strata::multinomial(rows, draws, true, g);
}
Tensor chosen(const Tensor& probs, const Shape& shape, const Shape& batch, Generator& g) {
  const DeviceScope at(probs.device());
  if (shape.product() == 0) return strata::zeros(shape, DType::i64);
  return choices(probs, shape.product() / batch.product(), g).t().reshape(shape);
}
Tensor one_hot_drawn(const Args& d, const Shape& s, Generator& g) {
  const Tensor drawn = chosen(d[0], without_right(s, 1), d.batch_shape(), g);
  return one_hot(drawn, s.back()).to(d[0].dtype());
}

Tensor multinomial_entropy(const Args& d) {
  const int64_t n = d.count(0);
  const auto trials = static_cast<double>(n);
  const Tensor whole = entropy_of(d[1], d[2]) * trials - std::lgamma(trials + 1);
  if (n == 0) return whole;
  // Binomial's numbers of each class, from 1 on, with their logarithms of probability.
  const Tensor x = beside_batch(d, counts_like(d[1], 1, n + 1)).unsqueeze(-1), p = d[1];
  const Tensor logs =
      std::lgamma(trials + 1) - lgamma(x + 1) - lgamma(trials - x + 1) + xlogy(x, p) + xlog1py(trials - x, -p);
  return whole + sum(exp(logs) * lgamma(x + 1), {0, -1});
}

}  // namespace

std::span<const DistributionRecord> class_records() {
  static const DistributionRecord one_hot_categorical{
      .name = "OneHotCategorical",
      .module = "one_hot_categorical",
      .doc = "One of the classes, as a vector of zeros and a one.",
      .parameters = {kProbs, kLogits},
      .support = Kind::one_hot,
      .event_shape = one_each,
      .adjust = adjusted,
      .derive = derived,
      .draw = one_hot_drawn,
      .log_prob = [](const Args& d, const Tensor& x) { return sum(weighted(x, d[1]), {-1}); },
      .entropy = [](const Args& d) { return entropy_of(d[0], d[1]); },
      .mean = [](const Args& d) { return d[0]; },
      .mode = [](const Args& d) { return one_hot(argmax(d[0], -1), d[0].size(-1)).to(d[0].dtype()); },
      .variance = [](const Args& d) { return d[0] * (1 - d[0]); },
      .enumerate =
          [](const Args& d) {
            const DeviceScope at(d[0].device());
            return beside_batch(d, strata::eye(classes(d), {}, d[0].dtype()));
          }};
  static const DistributionRecord records[] = {
      {.name = "Categorical",
       .module = "categorical",
       .doc = "One of the classes, by number.",
       .parameters = {kProbs, kLogits},
       .support = Kind::dependent,
       .support_of =
           [](const Args& d) { return Constraint(Kind::integer_interval, 0.0, static_cast<double>(classes(d) - 1)); },
       .adjust = adjusted,
       .derive = derived,
       .draw = [](const Args& d, const Shape& s, Generator& g) { return chosen(d[0], s, d.batch_shape(), g); },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             const Shape shape = broadcast_shapes(x.shape(), d.batch_shape(), "Categorical");
             const Tensor logits = d[1].expand(joined(shape, {classes(d)}));
             return gather(logits, -1, x.to(DType::i64).expand(shape).unsqueeze(-1)).squeeze(-1);
           },
       .entropy = [](const Args& d) { return entropy_of(d[0], d[1]); },
       .mean = [](const Args& d) { return full_like(d[0].select(-1, 0), kNaN); },
       .mode = [](const Args& d) { return argmax(d[0], -1); },
       .variance = [](const Args& d) { return full_like(d[0].select(-1, 0), kNaN); },
       .enumerate = [](const Args& d) { return beside_batch(d, counts_like(d[0], 0, classes(d)).to(DType::i64)); }},
      one_hot_categorical,
      [] {
        DistributionRecord r = one_hot_categorical;
        r.name = "OneHotCategoricalStraightThrough";
        r.doc =
            "One of the classes, as a vector of zeros and a one whose gradient is that of the probabilities (Bengio, "
            "Leonard, Courville, arXiv:1308.3432).";
        r.parent = "OneHotCategorical";
        r.has_rsample = true;
        r.draw = [](const Args& d, const Shape& s, Generator& g) {
          return one_hot_drawn(d, s, g) + (d[0] - d[0].detach());
        };
        return r;
      }(),
      {.name = "Multinomial",
       .module = "multinomial",
       .doc = "How often each class comes in `total_count` choices (Johnson, Kotz, Balakrishnan, Discrete Multivariate "
              "Distributions, ch. 35).",
       .parameters = {{"total_count", "The choices.", nonnegative_integer(), Role::count, 0, 1.0}, kProbs, kLogits},
       .support = Kind::dependent,
       .support_of = [](const Args& d) { return Constraint(Kind::multinomial, {}, static_cast<double>(d.count(0))); },
       .event_shape = [](const Args& d) { return Shape{classes(d, 1)}; },
       .adjust = [](size_t i, const Tensor& x) { return i == 0 ? x : class_adjusted(i == 1, x); },
       .derive = [](const Args& d, size_t i) { return class_odds(d, i, 1); },
       .draw =
           [](const Args& d, const Shape& s, Generator& g) {
             const int64_t k = s.back(), n = d.count(0), rows = d.batch_shape().product();
             const Tensor probs = d[1];
             if (n == 0 || s.product() == 0) return zeros_like(probs).expand(s);
             const int64_t samples = s.product() / (rows * k);
             const Tensor drawn = choices(probs, samples * n, g).reshape({rows, samples, n});
             const Tensor none = strata::zeros_like(drawn.narrow(-1, 0, 1), probs.dtype()).expand({rows, samples, k});
             const Tensor counts = scatter_add(none, -1, drawn, ones_like(drawn, probs.dtype()));
             return counts.transpose(0, 1).reshape(s);
           },
       .log_prob =
           [](const Args& d, const Tensor& x) {
             return lgamma(sum(x, {-1}) + 1) + sum(weighted(x, d[2]) - lgamma(x + 1), {-1});
           },
       .entropy = multinomial_entropy,
       .mean = [](const Args& d) { return d[1] * static_cast<double>(d.count(0)); },
       .variance = [](const Args& d) { return static_cast<double>(d.count(0)) * d[1] * (1 - d[1]); }},
  };
  return records;
}

}  // namespace strata::distributions
