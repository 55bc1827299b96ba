#pragma once
// Linear layers in fp8, forward and backward, with scales that the data gives: docs/design/fp8.md.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// A matrix's fp8 codes, and its scales: codes stand for numbers divided by their scale.
struct Fp8Matrix {
  Tensor codes, scale;      ///< [m, k] u8; f32 [1], or [m, 1] by row
  Tensor codes_t, scale_t;  ///< the transpose: [k, m rounded up to 16] u8, zeros at the end; f32 [1], or [k, 1] by row
};
/// The codes of x [m, k], k a multiple of 16, with scales by its largest magnitude: one ("tensor"), or one for each row
/// of `codes` and of `codes_t` ("row"). A scale is the least power of two that leaves nothing past the format's largest
/// number, 1 for zeros, NaN where a number is not finite. What is not wanted is empty. Throws ShapeError, DTypeError,
/// ValueError.
Fp8Matrix fp8_codes(const Tensor& x, const std::string& format = "e4m3", const std::string& scaling = "tensor",
                    bool lying = true, bool transposed = true);

/// linear(x, weight, bias) with the product in fp8: x and weight in e4m3, and backward, where their codes meet that of
/// the result's gradient, in e5m2. x [.., in], weight [out, in], both sizes multiples of 16; x and weight may have
/// different floating dtypes, the result and bias have x's. Of x its codes are kept for backward. Throws ShapeError,
/// DTypeError, ValueError; AutogradError where the gradient is differentiated again.
Tensor linear_fp8(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                  const std::string& scaling = "tensor");

}  // namespace strata
