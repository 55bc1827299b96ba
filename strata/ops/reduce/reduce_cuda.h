#pragma once
// What the CUDA files of reductions share.

#include "strata/ops/reduce/layout.h"

namespace strata {

/// The reductions that floating elements alone have.
void reduce_floating_cuda(Reduction what, const Tensor& y, const ReduceLayout& l, const Tensor& shift);

}  // namespace strata
