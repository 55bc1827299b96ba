#pragma once
// Products of up to eight rows of x with low-bit matrices on a card.

#include "strata/core/dtype.h"
#include "strata/ops/lowbit/lowbit_kernels.h"

namespace strata {

/// lowbit_tiles_cuda() for m up to 8, of what that takes: there the time is that of reading W.
void lowbit_few_cuda(const PackedView& w, DType t, const void* x, int64_t m, const void* bias, void* y);

}  // namespace strata
