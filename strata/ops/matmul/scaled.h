#pragma once
// Products of eight-bit numbers with scales: fp8 (as codes in u8; fp8.h) and i8. On Hopper and newer cards they run at
// twice the rate of bf16; elsewhere they are computed from the numbers that the codes stand for.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// The fp8 codes (u8) of x / scale, rounded to nearest even; what is too large becomes the largest number (448 for
/// "e4m3", 57344 for "e5m2"). scale is f32 and has one element, or broadcasts to x. Throws ValueError for another
/// format, DTypeError, ShapeError.
Tensor fp8_quantize(const Tensor& x, const Tensor& scale, const std::string& format = "e4m3");
/// The numbers that codes stand for, times scale.
Tensor fp8_dequantize(const Tensor& codes, const Tensor& scale, const std::string& format = "e4m3",
                      DType dtype = DType::f32);

/// [m, k] x [k, n] of i8 -> i32, exactly (PyTorch's _int_mm).
Tensor int8_matmul(const Tensor& a, const Tensor& b);

/// How scaled_matmul() reads its operands and gives its result.
struct ScaledMatmulOptions {
  std::string a_format = "e4m3";  ///< of u8 operands: "e4m3" or "e5m2"; i8 operands have none
  std::string b_format = "e4m3";
  DType dtype = DType::bf16;  ///< of the result: bf16, f16 or f32
};
/// (a b) * scale_a * scale_b + bias, for codes a [m, k] and b [k, n], both u8 or both i8 (PyTorch's _scaled_mm). Scales
/// are f32: of one element, or [m, 1] for a and [1, n] for b. bias [n] has the result's dtype, or is undefined. Sums
/// run in f32 (i32 for i8). The fastest layout is a by rows and b by columns (the transpose of a weight [n, k]), with k
/// and n multiples of 16. Throws ShapeError, DTypeError, ValueError.
Tensor scaled_matmul(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                     const Tensor& bias = {}, const ScaledMatmulOptions& options = {});

}  // namespace strata
