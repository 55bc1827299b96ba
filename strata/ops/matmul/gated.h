#pragma once
// The first half of a gated feed-forward layer as one op.

#include "strata/core/tensor.h"

namespace strata {

/// swiglu(linear(x, weight)): x [.., in], weight [2 N, in], the gate's rows first -> [.., N]. On Hopper the product and
/// the activation are one kernel, so that the 2 N numbers of a row never lie in memory. Throws ShapeError, DTypeError.
///   Tensor h = linear_swiglu(x, gate_up.weight);
Tensor linear_swiglu(const Tensor& x, const Tensor& weight);

}  // namespace strata
