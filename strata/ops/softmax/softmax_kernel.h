#pragma once
// Softmax kernels on raw memory: x is [outer, n, inner], contiguous; the normalised dimension is the middle one.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// y = softmax(x), or its logarithm.
void softmax_forward_cpu(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner);
/// The gradient of x, from the result y and its gradient gy.
void softmax_backward_cpu(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                          int64_t inner);

/// The same on the current stream of a CUDA device.
void softmax_forward_cuda(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner);
void softmax_backward_cuda(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                           int64_t inner);

}  // namespace strata
