#pragma once
// Fused tensors taken apart.

#include "strata/core/placement.h"
#include "strata/ops/join/join.h"
#include "strata/ops/view/view.h"

namespace strata::detail {

/// Views of `x` along `dim`, of `sizes` that add up to it. Of a sharded tensor that is cut segment by segment they are
/// taken in one op, whose gradient is cut in the same way.
inline TensorList segments_of(const Tensor& x, const Dims& sizes, int64_t dim) {
  if (is_placed(x)) return split_with_sizes(x, sizes, dim);
  TensorList parts;
  int64_t at = 0;
  for (const int64_t n : sizes) {
    parts.push_back(x.narrow(dim, at, n));
    at += n;
  }
  return parts;
}

}  // namespace strata::detail
