#pragma once
// How elementwise functions run on the CPU. Each function has a dense kernel for each type it computes in
// (scalar_cpu.cpp; simd_map() has vectorised ones of most). map_cpu() brings operands of any strides to them,
// block by block: it gathers strided operands, repeats broadcast ones and converts bf16 and f16 to f32 and back, in
// buffers that stay in the L1 cache.

#include <initializer_list>

#include "strata/core/scalar.h"
#include "strata/core/tensor.h"

namespace strata {

/// The functions that have kernels.
enum class Map : uint8_t {
  // one operand
  neg,
  abs,
  sign,
  reciprocal,
  square,
  sqrt,
  rsqrt,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  sigmoid,
  logsigmoid,
  softplus,
  relu,
  leaky_relu,
  elu,
  hardtanh,
  hardsigmoid,
  hardswish,
  mish,
  gelu,
  gelu_tanh,
  silu,
  floor,
  ceil,
  round,
  round_decimals,
  trunc,
  frac,
  clamp,
  nan_to_num,
  replace_between,
  softshrink,
  angle,
  logical_not,
  bitwise_not,
  isnan,
  isinf,
  isfinite,
  isposinf,
  isneginf,
  signbit,
  frexp_mantissa,
  frexp_exponent,
  pow_scalar,
  scalar_pow,
  add_scalar,
  rsub_scalar,
  mul_scalar,
  div_scalar,
  // two operands
  add,
  sub,
  mul,
  div,
  floor_divide,
  trunc_divide,
  remainder,
  fmod,
  pow,
  maximum,
  minimum,
  fmax,
  fmin,
  atan2,
  hypot,
  logaddexp,
  xlogy,
  xlog1py,
  logaddexp2,
  copysign,
  nextafter,
  prelu,
  heaviside,
  ldexp,
  gcd,
  lcm,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,
  right_shift,
  isclose,
  relu_backward,
  leaky_relu_backward,
  elu_backward,
  hardtanh_backward,
  clamp_backward,
  replace_between_backward,
  hardswish_backward,
  mish_backward,
  softplus_backward,
  gelu_backward,
  gelu_tanh_backward,
  silu_backward,
  sigmoid_backward,
  tanh_backward,
  rsqrt_backward,
  logit_backward,
  // three operands
  lerp,
  addcmul,
  addcdiv,
  where,
  // special functions (strata/ops/special), of one and two operands
  lgamma,
  digamma,
  polygamma,
  erfinv,
  erfcx,
  ndtr,
  ndtri,
  log_ndtr,
  entr,
  logit,
  sinc,
  bessel_i,
  bessel_j,
  bessel_y,
  bessel_k,
  spherical_bessel_j,
  airy,
  zeta,
  igamma,
  polynomial,
  count
};

/// Constants of a function (a slope, bounds, alpha), read in the type that it computes in.
struct MapParams {
  Scalar s[3];
  bool stream = false;  ///< the result is too large to stay in a cache: write around them
  /// For simd_map() kernels: 0 where an operand is one 64-byte vector that stands for all of them.
  int8_t step[3] = {1, 1, 1};
};

/// y[i] = f(in[0][i], in[1][i], ...) for n dense elements; y may be one of the inputs.
using DenseMap = void (*)(void* y, const void* const* in, int64_t n, const MapParams& params);

/// The kernel of `f` for operands that compute in `type` (never bf16 or f16); nullptr when there is none.
DenseMap scalar_map(Map f, DType type);
/// The vectorised kernel of `f` for this processor, on bf16 and f16 for the functions that matter most (computing in
/// f32 and rounding once); nullptr when there is none.
DenseMap simd_map(Map f, DType type);
/// The same for many rows at once: p, strides and row_strides are of the result, then of the operands, whose elements
/// lie side by side or, with stride 0, are one number a row.
using RowsMap = void (*)(char* const* p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows,
                         const MapParams& params);
/// The kernel of `f` for many rows in f32, bf16 or f16; nullptr when there is none.
RowsMap simd_rows_map(Map f, DType type);
/// Those of f64 (double_cpu.cpp), of whole numbers and bool (whole_cpu.cpp), and of special functions in f32 and f64
/// (strata/ops/special).
DenseMap simd_double_map(Map f);
DenseMap simd_whole_map(Map f, DType type);
DenseMap simd_special_map(Map f, DType type);

/// Conversions of dense runs for this processor, rounding to nearest even.
struct Converters {
  void (*bf16_to_f32)(float* y, const void* x, int64_t n);
  void (*f32_to_bf16)(void* y, const float* x, int64_t n);
  void (*f16_to_f32)(float* y, const void* x, int64_t n);
  void (*f32_to_f16)(void* y, const float* x, int64_t n);
};
const Converters& converters();

/// Writes f of `in` (all of y's shape) to `y`. The last input's dtype decides the type it computes in.
void map_cpu(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params);
/// The same for tensors on a CUDA device.
void map_cuda(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params);
/// The same on the device that a record's body is compiled for.
template <class On>
void map(On on, Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params = {}) {
  if constexpr (on.cuda)
    map_cuda(f, y, in, params);
  else
    map_cpu(f, y, in, params);
}

}  // namespace strata
