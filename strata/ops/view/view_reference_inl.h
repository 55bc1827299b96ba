#pragma once
// References of views and of their gradients: which place of x each place of the result shows, by arithmetic with
// indices.

#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;

/// y[p] = x[source(p)].
template <class F>
Tensor shown(const Tensor& x, const Shape& shape, F source) {
  const Array v(x);
  return naive::made(shape, [&](const Dims& p) { return v[source(p)]; });
}
/// Zeros, with g[p] added at target(p).
template <class F>
Tensor added(const Tensor& g, const Shape& shape, F target) {
  const Array v(g);
  Array y(shape);
  naive::each(v.shape(), [&](const Dims& p) { y[target(p)] += v[p]; });
  return y;
}

inline Tensor viewed(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  int64_t known = 1;
  for (const int64_t n : shape) known *= n == -1 ? 1 : n;
  for (int64_t& n : shape)
    if (n == -1) n = x.numel() / known;
  return Array(shape, x.to_vector<double>());
}

inline Tensor transposed(const Tensor& x, int64_t a, int64_t b) {
  a = naive::from_front(a, x.dim());
  b = naive::from_front(b, x.dim());
  const auto swapped = [&](Dims p) {
    if (!p.empty()) std::swap(p[a], p[b]);
    return p;
  };
  return shown(x, swapped(x.shape()), swapped);
}

inline Tensor permuted(const Tensor& x, const Dims& dims) {
  Shape shape;
  for (const int64_t d : dims) shape.push_back(x.shape()[naive::from_front(d, x.dim())]);
  return shown(x, shape, [&](const Dims& p) {
    Dims q = p;
    for (int i = 0; i < dims.size(); ++i) q[naive::from_front(dims[i], x.dim())] = p[i];
    return q;
  });
}

inline Tensor expanded(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  const int64_t lead = shape.size() - x.dim();
  for (int64_t i = lead; i < shape.size(); ++i)
    if (shape[i] == -1) shape[i] = x.shape()[i - lead];
  return shown(x, shape, [&](const Dims& p) {
    Dims q;
    for (int64_t i = 0; i < x.dim(); ++i) q.push_back(x.shape()[i] == 1 ? 0 : p[lead + i]);
    return q;
  });
}

/// The positions that a slice of a dimension of `size` elements takes.
inline std::vector<int64_t> positions_of_slice(int64_t size, int64_t start, int64_t end, int64_t step) {
  if (start < 0) start += size;
  if (end < 0) end += size;
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < size; ++i)
    if (i >= start && i < end && (i - std::max<int64_t>(start, 0)) % step == 0) taken.push_back(i);
  return taken;
}
inline Tensor sliced(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  dim = naive::from_front(dim, x.dim());
  const std::vector<int64_t> taken = positions_of_slice(x.shape()[dim], start, end, step);
  return shown(x, naive::moved(x.shape(), dim, static_cast<int64_t>(taken.size())),
               [&](const Dims& p) { return naive::moved(p, dim, taken[static_cast<size_t>(p[dim])]); });
}
inline Tensor sliced_back(const Tensor& g, const Shape& shape, int64_t dim, int64_t start, int64_t end, int64_t step) {
  dim = naive::from_front(dim, shape.size());
  const std::vector<int64_t> taken = positions_of_slice(shape[dim], start, end, step);
  return added(g, shape, [&](const Dims& p) { return naive::moved(p, dim, taken[static_cast<size_t>(p[dim])]); });
}

/// The place of x that select's place p is.
inline Dims selected_place(Dims p, const Shape& x, int64_t dim, int64_t index) {
  dim = naive::from_front(dim, x.size());
  p.insert(dim, index < 0 ? index + x[dim] : index);
  return p;
}
inline Tensor selected(const Tensor& x, int64_t dim, int64_t index) {
  Shape shape = x.shape();
  shape.erase(naive::from_front(dim, x.dim()));
  return shown(x, shape, [&](const Dims& p) { return selected_place(p, x.shape(), dim, index); });
}
inline Tensor selected_back(const Tensor& g, const Shape& shape, int64_t dim, int64_t index) {
  return added(g, shape, [&](const Dims& p) { return selected_place(p, shape, dim, index); });
}

/// The place of x that a diagonal's place p is: its last entry counts along both dimensions.
inline Dims diagonal_place(Dims p, const Shape& x, int64_t offset, int64_t dim1, int64_t dim2) {
  dim1 = naive::from_front(dim1, x.size());
  dim2 = naive::from_front(dim2, x.size());
  const int64_t k = p.back(), row = k + (offset < 0 ? -offset : 0), column = k + (offset > 0 ? offset : 0);
  p.resize(p.size() - 1);
  p.insert(std::min(dim1, dim2), dim1 < dim2 ? row : column);
  p.insert(std::max(dim1, dim2), dim1 < dim2 ? column : row);
  return p;
}
inline Tensor on_diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  Shape shape = x.shape();
  const int64_t a = naive::from_front(dim1, x.dim()), b = naive::from_front(dim2, x.dim());
  int64_t length = 0;
  for (int64_t i = 0; i < x.shape()[a]; ++i) length += i + offset >= 0 && i + offset < x.shape()[b];
  shape.erase(std::max(a, b));
  shape.erase(std::min(a, b));
  shape.push_back(length);
  return shown(x, shape, [&](const Dims& p) { return diagonal_place(p, x.shape(), offset, dim1, dim2); });
}
inline Tensor diagonal_back(const Tensor& g, const Shape& shape, int64_t offset, int64_t dim1, int64_t dim2) {
  return added(g, shape, [&](const Dims& p) { return diagonal_place(p, shape, offset, dim1, dim2); });
}

/// The place of x that a window's place p is: window number p[dim], the last entry inside of it.
inline Dims window_place(Dims p, int64_t dim, int64_t step) {
  const int64_t inside = p.back();
  p.resize(p.size() - 1);
  if (!p.empty()) p[dim] = (p[dim] > 0 ? p[dim] * step : 0) + inside;
  return p;
}
inline Tensor unfolded(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  dim = naive::from_front(dim, x.dim());
  Shape shape = x.shape();
  if (!shape.empty()) shape[dim] = (shape[dim] - size) / step + 1;
  shape.push_back(size);
  return shown(x, shape, [&](const Dims& p) { return window_place(p, dim, step); });
}
inline Tensor unfolded_back(const Tensor& g, const Shape& shape, int64_t dim, int64_t, int64_t step) {
  dim = naive::from_front(dim, shape.size());
  return added(g, shape, [&](const Dims& p) { return window_place(p, dim, step); });
}

/// The element that place p of a geometry shows.
inline int64_t element_at(const Dims& p, const Strides& strides, int64_t offset) {
  for (int i = 0; i < p.size(); ++i) offset += p[i] * strides[i];
  return offset;
}
/// x is a row-major copy: its storage is its elements in order.
inline Tensor strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  const Array v(x);
  return naive::made(shape, [&](const Dims& p) { return v.flat(element_at(p, strides, offset)); });
}
inline Tensor strided_back(const Tensor& g, const Shape& base_shape, const Strides& base_strides, int64_t base_offset,
                           const Shape& shape, const Strides& strides, int64_t offset) {
  int64_t size = 0;
  naive::each(base_shape, [&](const Dims& p) { size = std::max(size, 1 + element_at(p, base_strides, base_offset)); });
  naive::each(shape, [&](const Dims& p) { size = std::max(size, 1 + element_at(p, strides, offset)); });
  const Array v(g);
  Array storage(Shape{size});
  naive::each(shape, [&](const Dims& p) { storage.flat(element_at(p, strides, offset)) += v[p]; });
  return naive::made(base_shape, [&](const Dims& p) { return storage.flat(element_at(p, base_strides, base_offset)); });
}

}  // namespace strata::by_loops
