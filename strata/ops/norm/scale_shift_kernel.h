#pragma once
// Channels times a number plus another: what batch normalisation with given statistics comes to.

#include "strata/core/tensor.h"

namespace strata {

/// y[n, c, ...] = x[n, c, ...] * scale[c] + shift[c]; scale and shift are contiguous, f32, or f64 where x is. Any
/// strides; row-major ones and those of channels_last are gone through as they lie.
void scale_shift_cpu(Tensor& y, const Tensor& x, const Tensor& scale, const Tensor& shift);

}  // namespace strata
