#pragma once
// References of repeating, padding and moving: which place of x each place of the result shows, by
// arithmetic with indices.

#include <optional>
#include <string>

#include "strata/ops/view/view_reference_inl.h"

namespace strata::by_loops {

inline Tensor repeated(const Tensor& x, const Dims& repeats) {
  const int64_t rank = std::max<int64_t>(repeats.size(), x.dim()), lead = rank - x.dim();
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t r = i - (rank - repeats.size());
    shape.push_back((i < lead ? 1 : x.shape()[i - lead]) * (r < 0 ? 1 : repeats[r]));
  }
  return shown(x, shape, [&](const Dims& p) {
    Dims q;
    for (int64_t i = 0; i < x.dim(); ++i) q.push_back(p[lead + i] % x.shape()[i]);
    return q;
  });
}
inline Tensor repeated_in_a_row(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  const bool flat = !dim || x.dim() == 0;
  const Tensor from = flat ? Tensor(Array(Shape{x.numel()}, x.to_vector<double>())) : x;
  const int64_t d = flat ? 0 : naive::from_front(*dim, x.dim());
  return shown(from, naive::moved(from.shape(), d, from.shape()[d] * repeats),
               [&](const Dims& p) { return naive::moved(p, d, p[d] / repeats); });
}
inline Tensor numbers_repeated(const Tensor& repeats) {
  const Array counts(repeats);
  std::vector<double> all;
  for (int64_t i = 0; i < counts.size(); ++i)
    for (int64_t n = 0; n < static_cast<int64_t>(counts.flat(i)); ++n) all.push_back(static_cast<double>(i));
  return Array(Shape{static_cast<int64_t>(all.size())}, all);
}
inline TensorList grids(const TensorList& tensors, const std::string& indexing) {
  Shape shape;
  for (const Tensor& t : tensors) shape.push_back(t.numel());
  const bool exchanged = indexing == "xy" && shape.size() > 1;
  if (exchanged) std::swap(shape[0], shape[1]);
  TensorList all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Array v(tensors[i]);
    const auto along = static_cast<int64_t>(exchanged && i < 2 ? 1 - i : i);
    all.push_back(naive::made(shape, [&](const Dims& p) { return v.flat(p[along]); }));
  }
  return all;
}

/// Which element of a dimension of n a place shows that is `at` from the first: -1 for none.
inline int64_t padded_from(const std::string& mode, int64_t at, int64_t n) {
  if (at >= 0 && at < n) return at;
  if (mode == "constant") return -1;
  if (mode == "replicate") return at < 0 ? 0 : n - 1;
  if (mode == "circular") return (at + n) % n;
  return at < 0 ? -at : 2 * (n - 1) - at;
}
inline Tensor padded(const Tensor& x, const Dims& pads, const std::string& mode, Scalar value) {
  Dims before = Dims::filled(static_cast<int>(x.dim()), 0), cropped = before, kept = x.shape();
  Shape shape = x.shape();
  for (int i = 0; i < pads.size() / 2; ++i) {
    const int64_t d = x.dim() - 1 - i;
    before[d] = pads[2 * i];
    shape[d] += pads[2 * i] + pads[2 * i + 1];
    if (mode != "circular") continue;
    // What a side crops does not come back on the other one.
    cropped[d] = std::max<int64_t>(0, -pads[2 * i]);
    kept[d] -= cropped[d] + std::max<int64_t>(0, -pads[2 * i + 1]);
  }
  const Array v(x);
  return naive::made(shape, [&](Dims p) {
    for (int64_t d = 0; d < x.dim(); ++d) {
      const int64_t at = padded_from(mode, p[d] - before[d] - cropped[d], kept[d]);
      if (at < 0) return value.to_double();
      p[d] = at + cropped[d];
    }
    return v[p];
  });
}
inline Tensor padded_with(const Tensor& x, const Dims& pads, Scalar value) {
  return padded(x, pads, "constant", value);
}

inline Tensor rolled(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const Array v(x);
  if (dims.empty()) {
    Array y(x.shape());
    const int64_t n = v.size();
    for (int64_t i = 0; i < n; ++i) y.flat(((i + shifts[0]) % n + n) % n) = v.flat(i);
    return y;
  }
  return added(x, x.shape(), [&](Dims p) {
    for (int i = 0; x.dim() > 0 && i < dims.size(); ++i) {
      const int64_t d = naive::from_front(dims[i], x.dim()), n = x.shape()[d];
      p[d] = ((p[d] + shifts[i]) % n + n) % n;
    }
    return p;
  });
}
inline Tensor dims_moved(const Tensor& x, const Dims& source, const Dims& destination) {
  std::vector<int64_t> rest;  // those that stay, in their order
  for (int64_t d = 0; d < x.dim(); ++d) {
    bool moves = false;
    for (const int64_t s : source) moves = moves || naive::from_front(s, x.dim()) == d;
    if (!moves) rest.push_back(d);
  }
  Dims order;
  for (int64_t place = 0; place < x.dim(); ++place) {
    int64_t from = -1;
    for (int i = 0; i < source.size(); ++i)
      if (naive::from_front(destination[i], x.dim()) == place) from = naive::from_front(source[i], x.dim());
    if (from < 0) {
      from = rest.front();
      rest.erase(rest.begin());
    }
    order.push_back(from);
  }
  return permuted(x, order);
}

template <bool Lower>
Tensor triangle(const Tensor& x, int64_t diagonal) {
  const Array v(x);
  return naive::made(x.shape(), [&](const Dims& p) {
    const int64_t distance = p[p.size() - 1] - p[p.size() - 2];
    return (Lower ? distance <= diagonal : distance >= diagonal) ? v[p] : 0.0;
  });
}
inline Tensor embedded(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t rank = x.dim() + 1, n = x.shape().back() + std::abs(offset);
  Shape shape = x.shape();
  shape.resize(shape.size() - 1);
  const int64_t a = naive::from_front(dim1, rank), b = naive::from_front(dim2, rank);
  shape.insert(std::min(a, b), n);
  shape.insert(std::max(a, b), n);
  return diagonal_back(x, shape, offset, a, b);
}
inline Tensor diagonal_or_matrix(const Tensor& x, int64_t diagonal) {
  return x.dim() == 1 ? embedded(x, diagonal, 0, 1) : on_diagonal(x, diagonal, 0, 1);
}

}  // namespace strata::by_loops
