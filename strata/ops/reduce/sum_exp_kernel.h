#pragma once
#include "strata/ops/reduce/layout.h"

namespace strata {

/// y = the sums of exp(x - shift) over the middle dimension of [outer, n, inner] (floating, no gaps), in the
/// accumulation type, f32 or f64, which y and shift have; both have outer * inner elements. Sums go in a fixed order.
void sum_exp_cpu(const Tensor& y, const ReduceLayout& l, const Tensor& shift);

}  // namespace strata
