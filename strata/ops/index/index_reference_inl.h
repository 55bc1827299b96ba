#pragma once
// References of x[indices] and of writing there: the place of x that each place of the result stands for.

#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;

/// Calls f(place in the result, place in x) for every element of x[indices]. The index tensors, broadcast, stand in the
/// place of the first of them where they are neighbours, else in front. Returns the result's shape.
template <class F>
Shape named_places(const Shape& x, const TensorList& indices, F f) {
  Shape common;
  std::vector<int64_t> dims;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    dims.push_back(static_cast<int64_t>(d));
    common = broadcast_shapes(common, indices[d].shape(), "index");
  }
  const bool neighbours = dims.back() - dims.front() == static_cast<int64_t>(dims.size()) - 1;
  const int64_t lead = neighbours ? dims.front() : 0;
  std::vector<int64_t> rest;  // dimensions of x that are shown whole
  for (int64_t d = 0; d < x.size(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) rest.push_back(d);
  Shape shape;
  for (int64_t i = 0; i < lead; ++i) shape.push_back(x[rest[static_cast<size_t>(i)]]);
  for (const int64_t n : common) shape.push_back(n);
  for (size_t i = static_cast<size_t>(lead); i < rest.size(); ++i) shape.push_back(x[rest[i]]);
  std::vector<Array> numbers;
  for (const int64_t d : dims) numbers.emplace_back(indices[static_cast<size_t>(d)]);
  naive::each(shape, [&](const Dims& p) {
    Dims q = Dims::filled(x.size(), 0);
    for (size_t i = 0; i < rest.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      q[rest[i]] = p[at < lead ? at : at + common.size()];
    }
    for (size_t k = 0; k < dims.size(); ++k) {
      Dims place;  // in this index, aligned with the end of the common shape
      const Shape& own = numbers[k].shape();
      for (int64_t i = 0; i < own.size(); ++i)
        place.push_back(own[i] == 1 ? 0 : p[lead + common.size() - own.size() + i]);
      const auto i = static_cast<int64_t>(numbers[k][place]);
      q[dims[k]] = i < 0 ? i + x[dims[k]] : i;
    }
    f(p, q);
  });
  return shape;
}

inline Tensor indexed(const Tensor& x, const TensorList& indices) {
  const Array v(x);
  std::vector<double> all;
  const Shape shape = named_places(x.shape(), indices, [&](const Dims&, const Dims& q) { all.push_back(v[q]); });
  return Array(shape, all);
}
inline Tensor index_written(const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate) {
  const Array v(value);
  Array y(x);
  named_places(x.shape(), indices, [&](const Dims& p, const Dims& q) { y[q] = accumulate ? y[q] + v[p] : v[p]; });
  return y;
}

}  // namespace strata::by_loops
