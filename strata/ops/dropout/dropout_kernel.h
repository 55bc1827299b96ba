#pragma once
// Dropout on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// y[i] = x[i] * scale where number i of the key's stream is not below p, else 0; contiguous.
void dropout_cpu(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key);
/// The same on the current CUDA device; drops the same elements.
void dropout_cuda(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key);
/// Likewise for tensors of any strides: i counts their elements in row-major order.
void dropout_cuda(const Tensor& x, const Tensor& y, float p, double scale, RngKey key);

}  // namespace strata
