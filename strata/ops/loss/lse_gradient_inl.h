#pragma once
// What the records of cross entropy share.

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/view/view.h"

namespace strata {

/// `gx` with what reaches x through its saved lse = log(sum(exp(x))) over dim 1, of which `g` is the gradient: the
/// classes' probabilities times it. `gx` may be undefined: nothing reached x otherwise.
inline Tensor with_lse_gradient(const Tensor& gx, const Tensor& x, const Tensor& lse, const Tensor& g) {
  const Tensor p = add(x.to(g.dtype()), lse.unsqueeze(1), -1).exp();
  const Tensor through_lse = (p * g.unsqueeze(1)).to(x.dtype());
  return gx.defined() ? gx + through_lse : through_lse;
}

}  // namespace strata
