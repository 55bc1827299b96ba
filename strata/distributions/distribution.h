#pragma once
// Probability distributions over tensors: PyTorch's torch.distributions. Each family is a record (record.h).
//
//     namespace dist = strata::distributions;
//     dist::Distribution d = dist::normal(loc, scale);
//     Tensor x = d.rsample({100}), p = d.log_prob(x);

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/distributions/record.h"

namespace strata::distributions {

/// A function that a distribution does not have.
class NotDefined : public Error {
  using Error::Error;
};

/// What a distribution can be asked for.
enum class Function : uint8_t {
  rsample,
  log_prob,
  cdf,
  icdf,
  entropy,
  mean,
  mode,
  variance,
  enumerate_support,
  expand
};
/// "log_prob".
std::string_view name_of(Function function);

/// What Distribution calls: a record with parameters, a distribution made of others, or one of a language's own.
class DistributionBase {
 public:
  virtual ~DistributionBase() = default;
  virtual std::string name() const = 0;
  virtual Shape batch_shape() const = 0;
  virtual Shape event_shape() const = 0;
  virtual Constraint support() const = 0;
  /// Whether it can be asked for that.
  virtual bool has(Function function) const = 0;
  /// @name What Distribution says of these; values are not looked at here
  /// @{
  virtual Tensor sample(const Shape& sample_shape, Generator& generator) const = 0;
  virtual Tensor rsample(const Shape& sample_shape, Generator& generator) const = 0;
  virtual Tensor log_prob(const Tensor& value) const = 0;
  virtual Tensor cdf(const Tensor& value) const;
  virtual Tensor icdf(const Tensor& share) const;
  virtual Tensor entropy() const;
  virtual Tensor mean() const;
  virtual Tensor mode() const;
  virtual Tensor variance() const;
  virtual Tensor enumerate_support(bool expand) const;
  virtual std::shared_ptr<const DistributionBase> expand(const Shape& batch_shape) const;
  /// @}
  /// The parameter of that name; undefined where there is none.
  virtual Tensor parameter(std::string_view) const { return {}; }
  /// All tensors that it holds.
  virtual TensorList tensors() const { return {}; }

 protected:
  /// Throws NotDefined naming distribution and function.
  [[noreturn]] void refuse(Function function) const;
};

/// A batch of distributions, `batch_shape()` of them, each over values of `event_shape()`. A handle: copies are the
/// same. Functions throw NotDefined where the family has none, and (unless it was made without checks) ValueError for
/// values outside the support.
class Distribution {
 public:
  explicit Distribution(std::shared_ptr<const DistributionBase> base, bool checks = true)
      : base_(std::move(base)), checks_(checks) {}

  std::string name() const { return base_->name(); }
  Shape batch_shape() const { return base_->batch_shape(); }
  Shape event_shape() const { return base_->event_shape(); }
  Constraint support() const { return base_->support(); }
  /// Whether it can be asked for that.
  bool has(Function function) const { return base_->has(function); }
  const DistributionBase& base() const { return *base_; }
  const std::shared_ptr<const DistributionBase>& shared() const { return base_; }
  /// The parameter of that name, given or derived. Throws ValueError where there is none.
  Tensor parameter(std::string_view name) const;

  /// Values of shape sample_shape + batch_shape + event_shape, without a gradient.
  Tensor sample(const Shape& sample_shape = {}, Generator& generator = default_generator()) const;
  /// The same, through which gradients reach the parameters.
  Tensor rsample(const Shape& sample_shape = {}, Generator& generator = default_generator()) const;
  /// The logarithm of the density, or probability, of each value; the event's dimensions are gone.
  Tensor log_prob(const Tensor& value) const;
  /// The probability of at most `value`, and the value below which a share lies.
  Tensor cdf(const Tensor& value) const;
  Tensor icdf(const Tensor& share) const;
  /// The mean of -log_prob(), and exp() of it.
  Tensor entropy() const { return base_->entropy(); }
  Tensor perplexity() const;
  Tensor mean() const { return base_->mean(); }
  Tensor mode() const { return base_->mode(); }  ///< the likeliest value
  Tensor variance() const { return base_->variance(); }
  Tensor stddev() const;
  /// All values, along a first dimension; the batch's dimensions are 1 unless they are to be expanded.
  Tensor enumerate_support(bool expand = true) const { return base_->enumerate_support(expand); }
  /// The same distributions over a larger batch.
  Distribution expand(const Shape& batch_shape) const { return Distribution(base_->expand(batch_shape), checks_); }
  /// Throws ValueError for values of another shape, or outside the support.
  void validate_sample(const Tensor& value) const;
  /// "Normal(batch_shape=[2], event_shape=[])".
  std::string to_string() const;

 private:
  std::shared_ptr<const DistributionBase> base_;
  bool checks_;
};

/// A parameter as it is given: a tensor, a number (which takes the tensors' dtype and device), or nothing.
struct Given {
  Given() = default;
  Given(Tensor tensor) : tensor(std::move(tensor)) {}
  Given(double value) : number(value) {}
  Tensor tensor = {};
  std::optional<double> number = {};
  /// Whether there is one.
  bool given() const { return number || tensor.defined(); }
};

/// A record with parameters.
class RecordedDistribution final : public DistributionBase {
 public:
  /// `given` in the order of the record. Throws ValueError for one that is missing, too many, or outside its constraint
  /// where `checks` says so.
  RecordedDistribution(const DistributionRecord& record, const std::vector<Given>& given, bool checks);
  const Args& args() const { return args_; }
  std::string name() const override { return std::string(args_.record().name); }
  Shape batch_shape() const override { return args_.batch_shape(); }
  Shape event_shape() const override { return args_.event_shape(); }
  Constraint support() const override;
  bool has(Function function) const override;
  Tensor sample(const Shape& sample_shape, Generator& generator) const override;
  Tensor rsample(const Shape& sample_shape, Generator& generator) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& share) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor enumerate_support(bool expand) const override;
  std::shared_ptr<const DistributionBase> expand(const Shape& batch_shape) const override;
  Tensor parameter(std::string_view name) const override;
  TensorList tensors() const override;

 private:
  RecordedDistribution() = default;
  void prepare(const std::vector<Given>& given);
  void broadcast();
  void validate() const;
  Args args_;
};

/// The distribution of that name with parameters by theirs; those that are not named have their defaults. Throws
/// ValueError naming distribution and parameter for what is missing, unknown, or outside its constraint.
Distribution make(std::string_view name, const std::vector<std::pair<std::string, Given>>& parameters,
                  bool checks = true);

/// Kullback and Leibler's divergence, the mean over p of log p - log q. Throws NotDefined where there is no rule for
/// the two families.
Tensor kl_divergence(const Distribution& p, const Distribution& q);

/// The sum over the last `n` dimensions.
Tensor sum_right(const Tensor& x, int64_t n);

}  // namespace strata::distributions
