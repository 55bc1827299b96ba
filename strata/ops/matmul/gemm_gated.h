#pragma once
// linear_swiglu's kernel of tiles.

#include "strata/core/tensor.h"

namespace strata::cuda {

/// y = swiglu(linear(x, weight)) on the current stream. False, with nothing queued, where the kernel does not fit:
/// another card than Hopper, another dtype than bf16 and f16, rows that are not whole multiples of 16 bytes apart.
bool gated_tiles(Tensor& y, const Tensor& x, const Tensor& weight);

}  // namespace strata::cuda
