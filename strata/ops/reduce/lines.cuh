#pragma once
// Lines of a tensor along one dimension, for kernels that go along them.

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata {

struct Lines {
  int64_t count, n, inner;
  bool reverse;
};

inline Lines lines_of(const Tensor& x, int64_t dim, bool reverse) {
  Lines l{1, x.dim() == 0 ? 1 : x.shape()[dim], 1, reverse};
  for (int i = 0; i < x.dim(); ++i) {
    if (i != dim) l.count *= x.shape()[i];
    if (i > dim) l.inner *= x.shape()[i];
  }
  return l;
}

}  // namespace strata
