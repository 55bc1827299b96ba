#pragma once
// What is known of a distribution, in one place: docs/design/distributions.md. The checks of parameters, the classes of
// Python and Node, their documentation and the reference are made from it.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"
#include "strata/distributions/constraint.h"

namespace strata::distributions {

struct DistributionRecord;

/// One parameter of a distribution.
struct Parameter {
  /// How it is given.
  enum class Role : uint8_t {
    batch,    ///< it broadcasts with the others, but for its event's dimensions
    one_of,   ///< the same, and one of several of which exactly one is given (probs or logits)
    aside,    ///< a number or a tensor that stays as it is (a temperature)
    pair,     ///< two numbers (a tensor [2]), which stay as they are
    count,    ///< a whole number
    derived,  ///< never given: it follows from the others
  };
  std::string_view name;  ///< PyTorch's
  std::string_view doc;
  Constraint constraint;
  Role role = Role::batch;
  int64_t event_dim = 0;                ///< how many of its last dimensions belong to one distribution
  std::optional<double> fallback = {};  ///< its default
  bool eager = false;                   ///< derived when the distribution is made, not each time it is asked for
  std::optional<std::array<double, 2>> fallback_pair = {};  ///< that of two numbers
};

/// The parameters of a batch of distributions, as the functions of a record see them.
class Args {
 public:
  /// The i-th parameter of the record: as it was given, or what the record derives.
  Tensor operator[](size_t i) const;
  /// The first N parameters.
  template <size_t N>
  std::array<Tensor, N> first() const {
    std::array<Tensor, N> all;
    for (size_t i = 0; i < N; ++i) all[i] = (*this)[i];
    return all;
  }
  /// Whether the i-th parameter was given.
  bool given(size_t i) const { return given_[i]; }
  /// The i-th parameter, a count.
  int64_t count(size_t i) const { return values_[i].item<int64_t>(); }
  /// All that were given or made at once; undefined for the others.
  const std::vector<Tensor>& values() const { return values_; }
  const DistributionRecord& record() const { return *record_; }
  const Shape& batch_shape() const { return batch_; }
  const Shape& event_shape() const { return event_; }
  /// sample_shape + batch_shape + event_shape.
  Shape extended(const Shape& sample_shape) const;

 private:
  friend class RecordedDistribution;
  const DistributionRecord* record_ = nullptr;
  std::vector<Tensor> values_;
  std::vector<bool> given_;
  Shape batch_, event_;
};

/// A family of distributions. What is nullptr is not defined for it.
struct DistributionRecord {
  std::string_view name;    ///< PyTorch's: "Normal"
  std::string_view module;  ///< PyTorch's module of the class: "normal"
  std::string_view doc;     ///< with the source of the formulas
  std::vector<Parameter> parameters;
  Constraint support;  ///< Kind::dependent where it follows from the parameters: support_of
  Constraint (*support_of)(const Args&) = nullptr;
  std::string_view parent = {};  ///< the record whose parameters are the first ones of this, and whose divergences hold
  bool has_rsample = false;      ///< gradients reach the parameters through samples
  bool exponential = false;      ///< it belongs to the exponential family
  Shape (*event_shape)(const Args&) = nullptr;  ///< nullptr: numbers
  /// A parameter as the functions want it (probabilities that sum to 1); nullptr: as it is.
  Tensor (*adjust)(size_t i, const Tensor& given) = nullptr;
  /// A parameter that was not given, made of those that were.
  Tensor (*derive)(const Args&, size_t i) = nullptr;
  /// Throws ValueError for parameters that do not fit together.
  void (*together)(const Args&) = nullptr;

  /// Values of `shape` (sample, batch and event) drawn.
  Tensor (*draw)(const Args&, const Shape& shape, Generator&) = nullptr;
  Tensor (*log_prob)(const Args&, const Tensor& value) = nullptr;
  Tensor (*cdf)(const Args&, const Tensor& value) = nullptr;
  Tensor (*icdf)(const Args&, const Tensor& share) = nullptr;
  Tensor (*entropy)(const Args&) = nullptr;
  Tensor (*mean)(const Args&) = nullptr;
  Tensor (*mode)(const Args&) = nullptr;
  Tensor (*variance)(const Args&) = nullptr;
  /// All values, along a first dimension, for a batch_shape of ones.
  Tensor (*enumerate)(const Args&) = nullptr;

  /// Which parameter has that name; -1 where none has.
  int64_t index(std::string_view parameter) const;
};

/// Kullback and Leibler's divergence of two families.
struct DivergenceRecord {
  std::string_view p, q;                          ///< names of records
  Tensor (*value)(const Args& p, const Args& q);  ///< nullptr: infinite, as p has values that q has not
};

/// Every record, sorted by name.
std::span<const DistributionRecord* const> distribution_records();
/// The record of that name. Throws ValueError listing the names.
const DistributionRecord& distribution_record(std::string_view name);
/// Every divergence.
std::span<const DivergenceRecord> divergence_records();
/// The divergence of two families, their parents' where they have none of their own; nullptr where there is none.
const DivergenceRecord* divergence_record(const DistributionRecord& p, const DistributionRecord& q);
/// The records as JSON, for those who write classes and types; the reference page of all of them, in Markdown.
std::string distributions_json();
std::string distributions_markdown();

}  // namespace strata::distributions
