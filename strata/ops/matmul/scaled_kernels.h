#pragma once
// Kernels of the eight-bit products.

#include "strata/core/tensor.h"
#include "strata/ops/matmul/fp8.h"

namespace strata {

/// y = the codes of x (f32). Both dense.
void fp8_encode_cpu(const Tensor& y, const Tensor& x, Fp8 format);
void fp8_encode_cuda(const Tensor& y, const Tensor& x, Fp8 format);
/// y (f32) = the values of codes. Both dense.
void fp8_decode_cpu(const Tensor& y, const Tensor& codes, Fp8 format);
void fp8_decode_cuda(const Tensor& y, const Tensor& codes, Fp8 format);

/// Where a matrix's codes go, as they lie [m, k] and transposed [k, m rounded up to 16]; with their scales, of which
/// there is one, or with `by_row` one for each row of the codes. Undefined: not wanted. All dense.
struct Fp8CodesOf {
  Tensor codes, scale, codes_t, scale_t;
  Fp8 format = kE4m3;
  bool by_row = false;
};
/// The codes of x [m, k], dense, m at least 1, k a multiple of 16.
void fp8_codes_cpu(const Fp8CodesOf& to, const Tensor& x);
void fp8_codes_cuda(const Fp8CodesOf& to, const Tensor& x);

}  // namespace strata
