#pragma once
// Channels times a number plus another: what batch normalisation with given statistics comes to. Slices limited to a
// length.

#include "strata/core/tensor.h"

namespace strata {

/// y[n, c, ...] = x[n, c, ...] * scale[c] + shift[c]; scale and shift are contiguous, f32, or f64 where x is. Any
/// strides; row-major ones and those of channels_last are gone through as they lie.
void scale_shift_cpu(Tensor& y, const Tensor& x, const Tensor& scale, const Tensor& shift);

/// y = (x - mean) / sqrt(var + eps) * weight + bias by channel on a CUDA device; weight and bias may be undefined. x
/// and y are of one floating dtype and any strides.
void by_running_cuda(Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps);
/// y = x times most / (length + 1e-7) where its length, which broadcasts, is above `most`; on a CUDA device. Lengths
/// are in the arithmetic's type.
void limit_lengths_cuda(Tensor& y, const Tensor& x, const Tensor& lengths, double most);

}  // namespace strata
