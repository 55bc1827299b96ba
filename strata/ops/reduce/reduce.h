#pragma once
// Reductions. `dims` empty means all dimensions; with keepdim the reduced ones stay with size 1.

#include "strata/core/tensor.h"

namespace strata {

/// Sum over `dims`; integers and bool sum in i64. bf16 and f16 accumulate in f32.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

}  // namespace strata
