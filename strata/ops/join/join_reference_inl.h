#pragma once
// References of joining and splitting: which place of which tensor each place of the result shows.

#include <algorithm>
#include <vector>

#include "strata/ops/view/view_reference_inl.h"

namespace strata::by_loops {

inline Tensor stacked(const TensorList& tensors, int64_t dim) {
  dim = naive::from_front(dim, tensors[0].dim() + 1);
  std::vector<Array> all;
  for (const Tensor& t : tensors) all.emplace_back(t);
  Shape shape = tensors[0].shape();
  shape.insert(dim, static_cast<int64_t>(tensors.size()));
  return naive::made(shape, [&](Dims p) {
    const Array& from = all[static_cast<size_t>(p[dim])];
    p.erase(dim);
    return from[p];
  });
}
inline TensorList split_into(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  TensorList parts;
  int64_t start = 0;
  for (const int64_t n : sizes) {
    parts.push_back(
        shown(x, naive::moved(x.shape(), dim, n), [&](const Dims& p) { return naive::moved(p, dim, start + p[dim]); }));
    start += n;
  }
  return parts;
}
inline TensorList split_by(const Tensor& x, int64_t size, int64_t dim) {
  dim = naive::from_front(dim, x.dim());
  std::vector<int64_t> sizes;
  for (int64_t left = x.shape()[dim]; left > 0; left -= size) sizes.push_back(std::min(size, left));
  if (sizes.empty()) sizes.push_back(0);
  return split_into(x, sizes, dim);
}
inline TensorList split_to(const Tensor& x, const Dims& sizes, int64_t dim) {
  return split_into(x, sizes.vec(), naive::from_front(dim, x.dim()));
}
inline TensorList chunked(const Tensor& x, int64_t chunks, int64_t dim) {
  const int64_t n = x.shape()[naive::from_front(dim, x.dim())];
  if (n == 0)
    return split_into(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), naive::from_front(dim, x.dim()));
  int64_t size = 1;
  while (size * chunks < n) ++size;
  return split_by(x, size, dim);
}
inline TensorList unbound(const Tensor& x, int64_t dim) {
  TensorList parts;
  const int64_t n = x.shape()[naive::from_front(dim, x.dim())];
  for (int64_t i = 0; i < n; ++i) parts.push_back(selected(x, dim, i));
  return parts;
}

}  // namespace strata::by_loops
