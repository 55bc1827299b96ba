#pragma once
// Invertible maps between values, with the logarithms of their derivatives: PyTorch's torch.distributions.transforms.
// The simple ones are records; the others are made of transforms.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/distributions/distribution.h"

namespace strata::distributions {

/// What Transform calls.
class TransformBase {
 public:
  virtual ~TransformBase() = default;
  virtual std::string name() const = 0;
  virtual Constraint domain() const = 0;
  virtual Constraint codomain() const = 0;
  virtual bool bijective() const = 0;
  /// 1 where it rises, -1 where it falls. Throws NotDefined for a map that does neither.
  virtual Given sign() const;
  virtual Tensor forward(const Tensor& x) const = 0;
  virtual Tensor inverse(const Tensor& y) const = 0;
  /// log |dy / dx|, of each event.
  virtual Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const;
  virtual Shape forward_shape(const Shape& shape) const { return shape; }
  virtual Shape inverse_shape(const Shape& shape) const { return shape; }
  virtual bool equals(const TransformBase& other) const { return this == &other; }
  /// All tensors that it holds.
  virtual TensorList tensors() const { return {}; }
};

/// y = f(x), x = f.inverse(y). A handle: copies are the same.
class Transform {
 public:
  explicit Transform(std::shared_ptr<const TransformBase> base) : base_(std::move(base)) {}
  std::string name() const { return base_->name(); }
  /// The values that it takes, and those that it gives.
  Constraint domain() const { return base_->domain(); }
  Constraint codomain() const { return base_->codomain(); }
  bool bijective() const { return base_->bijective(); }  ///< whether each y is that of one x
  Given sign() const { return base_->sign(); }           ///< 1 where it rises, -1 where it falls
  Tensor operator()(const Tensor& x) const { return base_->forward(x); }
  Tensor inverse(const Tensor& y) const { return base_->inverse(y); }
  /// log |dy / dx|, of each event.
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const { return base_->log_abs_det_jacobian(x, y); }
  /// The shape of y for x of a shape, and of x for y.
  Shape forward_shape(const Shape& shape) const { return base_->forward_shape(shape); }
  Shape inverse_shape(const Shape& shape) const { return base_->inverse_shape(shape); }
  /// x as a function of y.
  Transform inv() const;
  const TransformBase& base() const { return *base_; }
  /// Whether both are the same map.
  friend bool operator==(const Transform& a, const Transform& b) { return a.base_->equals(*b.base_); }

 private:
  std::shared_ptr<const TransformBase> base_;
};

/// What a transform's record sees: its parameters in order, and shapes.
struct TransformArgs {
  std::vector<Given> values = {};
  std::vector<Shape> shapes = {};
  int64_t event_dim = 0;
};

/// A transform with a name. What is nullptr is as for a map of each element.
struct TransformRecord {
  std::string_view name;  ///< PyTorch's: "ExpTransform"
  std::string_view doc;
  Constraint domain, codomain;
  bool bijective = true;
  std::vector<std::string_view> parameters = {};  ///< their names
  double sign = 0;                                ///< 1 or -1; 0 where it is none, or follows from the parameters
  Tensor (*forward)(const TransformArgs&, const Tensor& x) = nullptr;
  Tensor (*inverse)(const TransformArgs&, const Tensor& y) = nullptr;
  Tensor (*log_abs_det)(const TransformArgs&, const Tensor& x, const Tensor& y) = nullptr;
  Given (*sign_of)(const TransformArgs&) = nullptr;
  Shape (*forward_shape)(const TransformArgs&, const Shape&) = nullptr;
  Shape (*inverse_shape)(const TransformArgs&, const Shape&) = nullptr;
};

/// Every record, sorted by name, and the one of a name. Throws ValueError listing the names.
std::span<const TransformRecord> transform_records();
const TransformRecord& transform_record(std::string_view name);
/// The transform of that name.
Transform make_transform(std::string_view name, const TransformArgs& args = {});

/// @name Transforms by their records' names
/// @{
Transform exp_transform();
Transform sigmoid_transform();
Transform tanh_transform();
Transform softplus_transform();
Transform softmax_transform();
Transform abs_transform();
Transform stick_breaking_transform();
Transform lower_cholesky_transform();
Transform positive_definite_transform();
Transform corr_cholesky_transform();
/// y = loc + scale x; `event_dim` last dimensions are one event.
Transform affine_transform(const Given& loc, const Given& scale, int64_t event_dim = 0);
/// y = x^exponent for positive x.
Transform power_transform(const Given& exponent);
/// Events of another shape with as many elements. Throws ValueError otherwise.
Transform reshape_transform(const Shape& in, const Shape& out);
/// @}

/// @name Transforms made of others
/// @{
/// One after the other; none of them is the identity.
Transform compose(const std::vector<Transform>& parts);
/// `joined` more dimensions in an event.
Transform independent_transform(const Transform& base, int64_t joined);
/// A transform for each piece of `lengths` along `dim`.
Transform cat_transform(const std::vector<Transform>& parts, int64_t dim, const std::vector<int64_t>& lengths);
/// A transform for each slice along `dim`.
Transform stack_transform(const std::vector<Transform>& parts, int64_t dim);
/// y = d.cdf(x): uniform where x is of d.
Transform cumulative_transform(const Distribution& d);
/// @}

/// Values of another distribution that went through transforms, one after the other.
class TransformedDistribution final : public DistributionBase {
 public:
  /// Throws ValueError where the transforms' events have more dimensions than `inner` has.
  TransformedDistribution(const Distribution& inner, std::vector<Transform> transforms);
  const Distribution& inner() const { return inner_; }
  const std::vector<Transform>& transforms() const { return transforms_; }
  std::string name() const override { return "TransformedDistribution"; }
  Shape batch_shape() const override { return batch_; }
  Shape event_shape() const override { return event_; }
  Constraint support() const override;
  bool has(Function function) const override;
  Tensor sample(const Shape& sample_shape, Generator& generator) const override;
  Tensor rsample(const Shape& sample_shape, Generator& generator) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& share) const override;
  std::shared_ptr<const DistributionBase> expand(const Shape& batch_shape) const override;
  TensorList tensors() const override;

 private:
  Tensor through(Tensor x) const;
  Tensor turned(const Tensor& share) const;
  Distribution inner_;
  std::vector<Transform> transforms_;
  Shape batch_, event_;
};

/// Values of `d` that went through `transforms`.
Distribution transformed(const Distribution& d, const std::vector<Transform>& transforms);

}  // namespace strata::distributions
