#pragma once
// What records' references are written with: tensors as arrays of doubles, and plain loops over their places. No op is
// called, so that a reference is right or wrong on its own.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::naive {

/// The elements of a tensor as doubles, in row-major order.
class Array {
 public:
  explicit Array(const Shape& shape, double fill = 0)
      : shape_(shape), values_(static_cast<size_t>(shape.product()), fill) {}
  Array(const Shape& shape, std::vector<double> values) : shape_(shape), values_(std::move(values)) {}
  explicit Array(const Tensor& t) : Array(t.shape(), t.to_vector<double>()) {}

  const Shape& shape() const { return shape_; }
  int64_t dim() const { return shape_.size(); }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  double& operator[](const Dims& place) { return values_[offset(place)]; }
  double operator[](const Dims& place) const { return values_[offset(place)]; }
  double& flat(int64_t i) { return values_[static_cast<size_t>(i)]; }
  double flat(int64_t i) const { return values_[static_cast<size_t>(i)]; }
  /// As an f64 tensor on the CPU.
  operator Tensor() const { return from_span<double>(values_, shape_); }

 private:
  size_t offset(const Dims& place) const {
    int64_t at = 0;
    for (int d = 0; d < shape_.size(); ++d) at = at * shape_[d] + place[d];
    return static_cast<size_t>(at);
  }

  Shape shape_;
  std::vector<double> values_;
};

/// Calls f(place) for every place of a shape, in row-major order.
template <class F>
void each(const Shape& shape, F f) {
  Dims place = Dims::filled(shape.size(), 0);
  for (int64_t n = shape.product(); n > 0; --n) {
    f(std::as_const(place));
    for (int d = shape.size() - 1; d >= 0 && ++place[d] == shape[d]; --d) place[d] = 0;
  }
}

/// The array of f(place) at every place of a shape.
template <class F>
Array made(const Shape& shape, F f) {
  Array y(shape);
  each(shape, [&](const Dims& place) { y[place] = f(place); });
  return y;
}

/// The same place with another number along `dim`; of a 0-dim tensor's place there is no other.
inline Dims moved(Dims place, int64_t dim, int64_t to) {
  if (!place.empty()) place[dim] = to;
  return place;
}

/// `dim` counted from the front.
inline int64_t from_front(int64_t dim, int64_t rank) {
  return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim;
}

/// Calls f(row, place) for each row of x along `dim`: its elements, and the place of the first.
template <class F>
void rows(const Array& x, int64_t dim, F f) {
  dim = from_front(dim, x.dim());
  Shape outer = x.shape();
  const int64_t n = outer.empty() ? 1 : outer[dim];
  if (!outer.empty()) outer[dim] = 1;
  each(outer, [&](const Dims& place) {
    std::vector<double> row;
    for (int64_t i = 0; i < n; ++i) row.push_back(x[moved(place, dim, i)]);
    f(row, place);
  });
}

/// Whether a dimension is among `dims`; none listed means all.
inline bool listed(const Dims& dims, int64_t dim, int64_t rank) {
  bool found = dims.empty();
  for (const int64_t d : dims) found = found || from_front(d, rank) == dim;
  return found;
}

/// f(all elements that one place of the result stands for), for a reduction over `dims`.
template <class F>
Array reduced(const Array& x, const Dims& dims, bool keepdim, F f) {
  Shape kept = x.shape(), shape;
  for (int d = 0; d < x.dim(); ++d) {
    if (listed(dims, d, x.dim())) kept[d] = 1;
    if (keepdim || !listed(dims, d, x.dim())) shape.push_back(kept[d]);
  }
  std::vector<std::vector<double>> parts(static_cast<size_t>(kept.product()));
  each(x.shape(), [&](const Dims& place) {
    size_t at = 0;
    for (int d = 0; d < kept.size(); ++d)
      at = at * static_cast<size_t>(kept[d]) + static_cast<size_t>(kept[d] == 1 ? 0 : place[d]);
    parts[at].push_back(x[place]);
  });
  std::vector<double> values;
  for (const auto& part : parts) values.push_back(f(part));
  return {shape, values};
}

}  // namespace strata::naive
