#pragma once
// Scalar: a number whose category (bool, integer, floating) takes part in type promotion.

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "strata/core/dtype.h"

namespace strata {

/// A bool, an integer or a floating number; ops take it where a plain number may stand.
class Scalar {
 public:
  Scalar() : Scalar(int64_t{0}) {}
  Scalar(bool v) : kind_(DType::boolean), i_(v) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Scalar(T v) : kind_(DType::i64), i_(static_cast<int64_t>(v)) {}
  template <std::floating_point T>
  Scalar(T v) : kind_(DType::f64), d_(static_cast<double>(v)) {}
  Scalar(Half v) : Scalar(static_cast<float>(v)) {}
  Scalar(BFloat16 v) : Scalar(static_cast<float>(v)) {}

  /// boolean, i64 or f64: what was stored.
  DType kind() const { return kind_; }
  double to_double() const { return kind_ == DType::f64 ? d_ : static_cast<double>(i_); }
  int64_t to_int() const { return kind_ == DType::f64 ? static_cast<int64_t>(d_) : i_; }
  bool to_bool() const { return kind_ == DType::f64 ? d_ != 0 : i_ != 0; }
  template <class T>
  T to() const {
    if constexpr (std::same_as<T, bool>)
      return to_bool();
    else if constexpr (std::integral<T>)
      return static_cast<T>(to_int());
    else
      return static_cast<T>(static_cast<std::conditional_t<std::same_as<T, double>, double, float>>(to_double()));
  }

 private:
  DType kind_;
  union {
    int64_t i_;
    double d_;
  };
};

}  // namespace strata
