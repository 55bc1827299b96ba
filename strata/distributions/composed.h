#pragma once
// Distributions made of others.

#include "strata/distributions/distribution.h"

namespace strata::distributions {

/// The last dimensions of a batch as dimensions of one event: log_prob() sums over them.
class IndependentDistribution final : public DistributionBase {
 public:
  /// Throws ValueError for more dimensions than the batch has.
  IndependentDistribution(Distribution inner, int64_t joined);
  const Distribution& inner() const { return inner_; }
  int64_t joined() const { return joined_; }
  std::string name() const override { return "Independent"; }
  Shape batch_shape() const override;
  Shape event_shape() const override;
  Constraint support() const override { return inner_.support().independent(joined_); }
  bool has(Function function) const override;
  Tensor sample(const Shape& sample_shape, Generator& generator) const override;
  Tensor rsample(const Shape& sample_shape, Generator& generator) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return inner_.mean(); }
  Tensor mode() const override { return inner_.mode(); }
  Tensor variance() const override { return inner_.variance(); }
  Tensor enumerate_support(bool expand) const override;
  std::shared_ptr<const DistributionBase> expand(const Shape& batch_shape) const override;
  TensorList tensors() const override { return inner_.base().tensors(); }

 private:
  Distribution inner_;
  int64_t joined_;
};

/// One of several distributions of a family, chosen by a Categorical: the last dimension of the components' batch.
class MixtureDistribution final : public DistributionBase {
 public:
  /// Throws ValueError unless `mixture` has logits of as many classes as there are components, over the same batch.
  MixtureDistribution(Distribution mixture, Distribution components);
  const Distribution& mixture() const { return mixture_; }
  const Distribution& components() const { return components_; }
  std::string name() const override { return "MixtureSameFamily"; }
  Shape batch_shape() const override;
  Shape event_shape() const override { return components_.event_shape(); }
  /// The components', or Kind::dependent where those differ.
  Constraint support() const override;
  bool has(Function function) const override;
  Tensor sample(const Shape& sample_shape, Generator& generator) const override;
  Tensor rsample(const Shape& sample_shape, Generator& generator) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor mean() const override;
  Tensor variance() const override;
  std::shared_ptr<const DistributionBase> expand(const Shape& batch_shape) const override;
  TensorList tensors() const override;

 private:
  Tensor padded(const Tensor& value) const;
  Tensor weights() const;
  Distribution mixture_, components_;
};

/// The last `joined` dimensions of d's batch as one event.
Distribution independent(const Distribution& d, int64_t joined);
/// Components, one for each class of `mixture`, chosen by it.
Distribution mixture_same_family(const Distribution& mixture, const Distribution& components);

}  // namespace strata::distributions
