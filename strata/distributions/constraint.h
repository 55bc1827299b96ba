#pragma once
// What values parameters and samples may have: PyTorch's torch.distributions.constraints.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::distributions {

/// An end of an interval: a number, or a tensor with one for each distribution of a batch.
struct Bound {
  Bound() = default;
  Bound(double number) : number(number) {}
  Bound(Tensor tensor) : tensor(std::move(tensor)) {}
  std::optional<double> number = {};
  Tensor tensor = {};
  /// Whether there is one.
  bool given() const { return number || tensor.defined(); }
};

/// A region of values. `event_dim()` dimensions belong to one event, and check() says of each event whether it is
/// inside.
class Constraint {
 public:
  /// The kinds, by the names of PyTorch's: name_of() gives them as text.
  enum class Kind : uint8_t {
    dependent,
    real,
    boolean,
    one_hot,
    greater_than,
    greater_than_eq,
    less_than,
    interval,
    half_open_interval,
    integer_interval,
    integer_greater_than_eq,
    multinomial,
    simplex,
    square,
    lower_triangular,
    lower_cholesky,
    corr_cholesky,
    symmetric,
    positive_semidefinite,
    positive_definite,
  };

  /// `joined` further dimensions make one event: real vectors are (Kind::real, {}, {}, 1).
  Constraint(Kind kind, Bound lower = {}, Bound upper = {}, int64_t joined = 0)
      : kind_(kind), lower_(std::move(lower)), upper_(std::move(upper)), joined_(joined) {}

  Kind kind() const { return kind_; }
  const Bound& lower() const { return lower_; }
  const Bound& upper() const { return upper_; }
  int64_t joined() const { return joined_; }
  /// How many of a value's last dimensions are one event.
  int64_t event_dim() const;
  /// Whether values are whole numbers.
  bool is_discrete() const;
  /// Whether each event of `value` lies inside, as bool; NaN lies nowhere. Throws ValueError where the constraint
  /// depends on what it does not know, ShapeError for fewer dimensions than an event has.
  Tensor check(const Tensor& value) const;
  /// The same with `n` more dimensions in an event.
  Constraint independent(int64_t n) const { return {kind_, lower_, upper_, joined_ + n}; }
  /// As PyTorch prints it: "GreaterThan(lower_bound=0.0)".
  std::string text() const;

 private:
  Kind kind_;
  Bound lower_, upper_;
  int64_t joined_;
};

/// PyTorch's name of a kind: "greater_than".
std::string_view name_of(Constraint::Kind kind);
/// The kind of that name. Throws ValueError.
Constraint::Kind constraint_kind(std::string_view name);
/// all() over the last `n` dimensions: whether every part of an event is inside. Throws ShapeError for fewer
/// dimensions.
Tensor all_right(const Tensor& inside, int64_t n);

/// @name The constraints without bounds of their own
/// @{
inline Constraint real() {
  return Constraint::Kind::real;
}
inline Constraint positive() {
  return {Constraint::Kind::greater_than, 0.0};
}
inline Constraint nonnegative() {
  return {Constraint::Kind::greater_than_eq, 0.0};
}
inline Constraint unit_interval() {
  return {Constraint::Kind::interval, 0.0, 1.0};
}
inline Constraint nonnegative_integer() {
  return {Constraint::Kind::integer_greater_than_eq, 0.0};
}
/// @}

}  // namespace strata::distributions
