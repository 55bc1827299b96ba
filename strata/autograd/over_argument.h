#pragma once
// Ops whose gradient reads their argument, written over it: silu_, gelu_.
//
// The argument's memory is kept for backward anyway. So instead of a copy of it, beside which the result is written
// over the original, the result has memory of its own and the tensor shows it from then on.

#include "strata/core/tensor.h"

namespace strata {

/// A tensor with the memory and history of `x`, for the op to read and save. Undefined, and nothing may be put over x,
/// where the write would be missed by whoever else sees that memory (a view, a tensor saved for another op, a leaf).
/// `holders`: references to x that the caller knows of. Throws ValueError if x is undefined.
Tensor set_aside(const Tensor& x, uint32_t holders = 1);

/// x shows the elements of `y`, which was computed from set_aside(x), and has its history. Throws ValueError unless y
/// is like x.
void put_over(const Tensor& x, const Tensor& y);

}  // namespace strata
