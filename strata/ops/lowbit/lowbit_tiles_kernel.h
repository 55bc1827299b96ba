#pragma once
// Products with low-bit matrices on a card's tensor cores.

#include "strata/core/dtype.h"
#include "strata/ops/lowbit/lowbit_kernels.h"

namespace strata {

/// Queues y = x W^T + bias for x [m, columns] of bf16 or f16, dense, its columns in the order of the codes, on the
/// current device, and returns true, where m is at most 32, W is int4, int8 or e4m3 with scales of its own, and its
/// columns and blocks of columns are whole steps: of 128 columns for int4, of 64 for the others. bias may be null.
bool lowbit_tiles_cuda(const PackedView& w, DType t, const void* x, int64_t m, const void* bias, void* y);

}  // namespace strata
