#pragma once
// Copies and conversions.

#include "strata/core/tensor.h"

namespace strata {

/// `x` converted to `dtype`; `x` itself when it has it already. Floating to integer truncates towards zero.
Tensor to(const Tensor& x, DType dtype);
/// `x` on `device`; `x` itself when it is there already. Throws DeviceError for a device that is not there.
Tensor to(const Tensor& x, Device device);
/// `x` in row-major order; `x` itself when it is already.
Tensor contiguous(const Tensor& x);
/// A copy with its own storage, its elements in the same order in memory, without gaps.
Tensor clone(const Tensor& x);
/// A host tensor with its elements in page-locked memory, row-major: `x` itself when they are there already, else a
/// copy.
/// `.to(device)` and `copy_()` of it queue the copy and return, so it must stay as it is, and alive, until the stream
/// has passed. Any thread may call it. Throws DeviceError for a tensor that is not on the host, and where there is no
/// CUDA device.
Tensor pin_memory(const Tensor& x);

/// Copies between tensors of one shape on any devices, converting; the kernel behind all of the above. No checks, no
/// autograd.
void copy_elements(const Tensor& dst, const Tensor& src);
/// Writes `value`, converted, to every element. No checks, no autograd.
void fill_elements(const Tensor& dst, Scalar value);

}  // namespace strata
