#pragma once
// What medians, modes and quantiles share.

#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/view/view.h"

namespace strata {

inline Cost sort_cost(const Tensor& x) {
  const auto n = static_cast<double>(x.numel());
  return {n * std::log2(2 + n), static_cast<double>(x.nbytes())};
}

inline Tensor as_row(const Tensor& x) {
  return x.dim() == 0 ? reshape(x, {1}) : x;
}

/// Some rows of which have NaN, one of them nothing else.
inline Tensor with_nan(Samples& s) {
  const Tensor x = s.distinct({3, 5});
  if (is_floating(x.dtype())) {
    x.slice(0, 0, 1).slice(1, 1, 4, 2).fill_(NAN);
    x.slice(0, 2, 3).fill_(NAN);
  }
  return x;
}

}  // namespace strata
