#pragma once
// References of losses and distances by hand: element by element in double precision, with nothing of the ops that they
// judge.

#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::by_hand {

/// Elements in row-major order.
using Numbers = std::vector<double>;

/// The elements of t as `shape`, broadcast; an undefined t is 1 everywhere.
inline Numbers numbers(const Tensor& t, const Shape& shape) {
  return t.defined() ? t.expand(shape).to_vector<double>() : Numbers(static_cast<size_t>(shape.product()), 1.0);
}

/// `each` of `shape` averaged, added or as it is.
inline Tensor reduced(const Numbers& each, const Shape& shape, const std::string& reduction) {
  if (reduction == "none") return from_span<double>(each, shape);
  double total = 0;
  for (const double v : each) total += v;
  if (reduction == "mean") total /= static_cast<double>(each.size());
  return from_span<double>(Numbers{total}, {});
}

/// The shape that all of them broadcast to; undefined tensors do not count.
template <class... T>
Shape common_shape(const T&... tensors) {
  Shape shape;
  ((shape = tensors.defined() ? broadcast_shapes(shape, tensors.shape(), "reference") : shape), ...);
  return shape;
}

/// f of the tensors' elements at each place of their common shape, reduced.
template <class F, class... T>
Tensor each(const std::string& reduction, F&& f, const T&... tensors) {
  const Shape shape = common_shape(tensors...);
  const std::vector<Numbers> columns{numbers(tensors, shape)...};
  Numbers r(static_cast<size_t>(shape.product()));
  [&]<size_t... I>(std::index_sequence<I...>) {
    for (size_t i = 0; i < r.size(); ++i) r[i] = f(columns[I][i]...);
  }
  (std::index_sequence_for<T...>());
  return reduced(r, shape, reduction);
}

}  // namespace strata::by_hand
