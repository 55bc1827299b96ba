#pragma once
// The gradients of a convolution's weight and bias on a CUDA device from one reading of its result's gradient. `s` and
// the operands are those of conv_kernels.h; all pointers lie on `device`.

#include "strata/core/tensor.h"
#include "strata/ops/conv/conv_kernels.h"

namespace strata {

/// w = the gradient of <y, conv_forward(x, w)> and bias [oc] = the sum of y over all but its channels, with the same
/// bits every time. False, with nothing done, where there is no kernel that does both.
bool conv_gradients_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w,
                         void* bias);

namespace conv_cuda {
/// Both by Hopper's tensor cores, of row-major tensors whose rows are along the sum: f32 where TF32 is allowed, and
/// kernels of 1 x 1 that move by one. False, with nothing done, for others.
bool hopper_gradients(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w,
                      void* bias);
}  // namespace conv_cuda

}  // namespace strata
