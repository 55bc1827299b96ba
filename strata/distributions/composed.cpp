#include "strata/distributions/composed.h"

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {

// ---- Independent ----

IndependentDistribution::IndependentDistribution(Distribution inner, int64_t joined)
    : inner_(std::move(inner)), joined_(joined) {
  const int n = inner_.batch_shape().size();
  check(joined >= 0 && joined <= n, "Independent",
        "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual ", joined, " vs ", n);
}
Shape IndependentDistribution::batch_shape() const {
  return without_right(inner_.batch_shape(), joined_);
}
Shape IndependentDistribution::event_shape() const {
  return strata::distributions::joined(right(inner_.batch_shape(), joined_), inner_.event_shape());
}
bool IndependentDistribution::has(Function f) const {
  return f != Function::cdf && f != Function::icdf && inner_.has(f);
}
Tensor IndependentDistribution::sample(const Shape& sample_shape, Generator& g) const {
  return inner_.sample(sample_shape, g);
}
Tensor IndependentDistribution::rsample(const Shape& sample_shape, Generator& g) const {
  return inner_.rsample(sample_shape, g);
}
Tensor IndependentDistribution::log_prob(const Tensor& value) const {
  return sum_right(inner_.log_prob(value), joined_);
}
Tensor IndependentDistribution::entropy() const {
  return sum_right(inner_.entropy(), joined_);
}
Tensor IndependentDistribution::enumerate_support(bool expand) const {
  if (joined_ > 0) throw NotDefined("Independent", "Enumeration over cartesian product is not implemented");
  return inner_.enumerate_support(expand);
}
std::shared_ptr<const DistributionBase> IndependentDistribution::expand(const Shape& batch_shape) const {
  const Shape whole = strata::distributions::joined(batch_shape, right(inner_.batch_shape(), joined_));
  return std::make_shared<IndependentDistribution>(inner_.expand(whole), joined_);
}

// ---- MixtureSameFamily ----

MixtureDistribution::MixtureDistribution(Distribution mixture, Distribution components)
    : mixture_(std::move(mixture)), components_(std::move(components)) {
  const Shape of_mixture = mixture_.batch_shape(), of_components = components_.batch_shape();
  check(!of_components.empty(), "MixtureSameFamily", "the components need a batch dimension");
  const Shape outer = without_right(of_components, 1);
  for (int i = 1; i <= std::min(of_mixture.size(), outer.size()); ++i) {
    const int64_t a = of_mixture[of_mixture.size() - i], b = outer[outer.size() - i];
    check(a == 1 || b == 1 || a == b, "MixtureSameFamily", "`mixture_distribution.batch_shape` (", of_mixture,
          ") is not compatible with `component_distribution.batch_shape` (", of_components, ")");
  }
  const int64_t classes = mixture_.parameter("logits").size(-1);
  check(classes == of_components.back(), "MixtureSameFamily", "`mixture_distribution component` (", classes,
        ") does not equal `component_distribution.batch_shape[-1]` (", of_components.back(), ")");
}
Shape MixtureDistribution::batch_shape() const {
  return without_right(components_.batch_shape(), 1);
}
Constraint MixtureDistribution::support() const {
  const Constraint c = components_.support();
  if (c.lower().tensor.defined() || c.upper().tensor.defined()) return Constraint::Kind::dependent;
  return c;
}
bool MixtureDistribution::has(Function f) const {
  switch (f) {
    case Function::log_prob:
    case Function::cdf:
    case Function::mean:
    case Function::variance:
    case Function::expand:
      return components_.has(f);
    default:
      return false;
  }
}
// With a dimension for the components, before those of an event.
Tensor MixtureDistribution::padded(const Tensor& value) const {
  return value.unsqueeze(-1 - event_shape().size());
}
// The probabilities, with dimensions for an event.
Tensor MixtureDistribution::weights() const {
  Tensor p = mixture_.parameter("probs");
  for (int i = 0; i < event_shape().size(); ++i) p = p.unsqueeze(-1);
  return p;
}
Tensor MixtureDistribution::sample(const Shape& sample_shape, Generator& g) const {
  const Shape batch = batch_shape(), event = event_shape();
  const int64_t at = sample_shape.size() + batch.size();
  Tensor which = mixture_.sample(sample_shape, g);
  which = which.expand(joined(sample_shape, batch)).unsqueeze(-1);
  for (int i = 0; i < event.size(); ++i) which = which.unsqueeze(-1);
  const Tensor all = components_.sample(sample_shape, g);
  const Shape one = joined(joined(sample_shape, batch), joined({1}, event));
  return gather(all, at, which.expand(one)).squeeze(at);
}
Tensor MixtureDistribution::rsample(const Shape&, Generator&) const {
  refuse(Function::rsample);
}
Tensor MixtureDistribution::log_prob(const Tensor& value) const {
  return logsumexp(components_.log_prob(padded(value)) + log_softmax(mixture_.parameter("logits"), -1), {-1});
}
Tensor MixtureDistribution::cdf(const Tensor& value) const {
  return sum(components_.cdf(padded(value)) * mixture_.parameter("probs"), {-1});
}
Tensor MixtureDistribution::mean() const {
  return sum(weights() * components_.mean(), {-1 - event_shape().size()});
}
// The mean of the components' variances, and the variance of their means.
Tensor MixtureDistribution::variance() const {
  const Dims at{-1 - event_shape().size()};
  const Tensor p = weights(), apart = components_.mean() - sum(p * components_.mean(), at, true);
  return sum(p * (components_.variance() + square(apart)), at);
}
std::shared_ptr<const DistributionBase> MixtureDistribution::expand(const Shape& batch_shape) const {
  const Shape inner = joined(batch_shape, right(components_.batch_shape(), 1));
  return std::make_shared<MixtureDistribution>(mixture_.expand(batch_shape), components_.expand(inner));
}

TensorList MixtureDistribution::tensors() const {
  TensorList held = mixture_.base().tensors();
  for (const Tensor& t : components_.base().tensors()) held.push_back(t);
  return held;
}

Distribution independent(const Distribution& d, int64_t joined) {
  return Distribution(std::make_shared<IndependentDistribution>(d, joined));
}
Distribution mixture_same_family(const Distribution& mixture, const Distribution& components) {
  return Distribution(std::make_shared<MixtureDistribution>(mixture, components));
}

}  // namespace strata::distributions
