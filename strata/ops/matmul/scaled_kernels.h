#pragma once
// Kernels of the eight-bit products.

#include <string_view>

#include "strata/core/tensor.h"
#include "strata/ops/matmul/fp8.h"

namespace strata {

/// y = the codes of x (f32). Both dense.
void fp8_encode_cpu(const Tensor& y, const Tensor& x, Fp8 format);
void fp8_encode_cuda(const Tensor& y, const Tensor& x, Fp8 format);
/// y (f32) = the values of codes. Both dense.
void fp8_decode_cpu(const Tensor& y, const Tensor& codes, Fp8 format);
void fp8_decode_cuda(const Tensor& y, const Tensor& codes, Fp8 format);

}  // namespace strata
