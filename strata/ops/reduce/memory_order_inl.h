#pragma once
// The dimensions of a tensor as they lie.

#include <algorithm>
#include <cstdint>

#include "strata/core/tensor.h"

namespace strata {

/// The dimensions of x, the one with the largest step first; those of one, which may have any step, before all.
inline Dims dims_in_memory(const Tensor& x) {
  Dims order;
  for (int64_t i = 0; i < x.dim(); ++i) order.push_back(i);
  if (x.is_contiguous()) return order;
  const auto step = [&](int64_t d) { return x.shape()[d] == 1 ? INT64_MAX : x.strides()[d]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return step(a) > step(b); });
  return order;
}

}  // namespace strata
