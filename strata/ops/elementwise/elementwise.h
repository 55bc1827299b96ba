#pragma once
// Elementwise functions. Arguments broadcast and promote as in PyTorch; a Scalar decides the result's dtype only when
// its kind (bool < integer < floating) is higher than the tensor's. Functions that are not defined for integers convert
// them to default_dtype(). A name ending in _ writes over its first argument.

#include <optional>
#include <string_view>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// @name Arithmetic
/// @{
/// a + alpha * b. Bool tensors add as "or".
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha = 1);
Tensor add(const Tensor& a, Scalar b, Scalar alpha = 1);
/// a - alpha * b. Throws DTypeError for two bool tensors.
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha = 1);
Tensor sub(const Tensor& a, Scalar b, Scalar alpha = 1);
/// alpha-scaled a subtracted from b: b - alpha * a.
Tensor rsub(const Tensor& a, Scalar b, Scalar alpha = 1);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, Scalar b);
/// True division: integers become default_dtype().
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Scalar b);
/// Division rounded to "floor" or "trunc", keeping integer dtypes; "" is true division. Throws ValueError for another
/// mode and for an integer division by zero.
Tensor div(const Tensor& a, const Tensor& b, std::string_view rounding_mode);
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Scalar b);
Tensor trunc_divide(const Tensor& a, const Tensor& b);
/// a - b * floor(a / b): the sign of b. Throws ValueError for an integer division by zero.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Scalar b);
/// a - b * trunc(a / b): the sign of a. Throws ValueError for an integer division by zero.
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Scalar b);
/// a to the power b. Throws ValueError for an integer tensor to a negative integer Scalar.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Scalar b);
Tensor pow(Scalar a, const Tensor& b);
/// The larger (smaller) of a and b; NaN if either is. At a tie each gets half the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// The same, ignoring NaN where the other is a number.
Tensor fmax(const Tensor& a, const Tensor& b);
Tensor fmin(const Tensor& a, const Tensor& b);
/// The angle of the point (b, a), in (-pi, pi].
Tensor atan2(const Tensor& a, const Tensor& b);
/// sqrt(a^2 + b^2) without overflow.
Tensor hypot(const Tensor& a, const Tensor& b);
/// log(exp(a) + exp(b)) without overflow.
Tensor logaddexp(const Tensor& a, const Tensor& b);
/// log2(2^a + 2^b) without overflow.
Tensor logaddexp2(const Tensor& a, const Tensor& b);
/// Powers in f64.
Tensor float_power(const Tensor& a, const Tensor& b);
/// |a| with the sign of b, also that of -0 and NaN.
Tensor copysign(const Tensor& a, const Tensor& b);
/// a * 2^b.
Tensor ldexp(const Tensor& a, const Tensor& b);
/// The neighbour of a in the direction of b. Throws DTypeError unless both are f32 or f64. It has no gradient:
/// AutogradError where one is asked for.
Tensor nextafter(const Tensor& a, const Tensor& b);
/// 0 where x < 0, `values` where x is 0, 1 above.
Tensor heaviside(const Tensor& x, const Tensor& values);
/// The greatest common divisor, not negative; of 0 and 0 it is 0. Throws DTypeError unless integers.
Tensor gcd(const Tensor& a, const Tensor& b);
/// The least common multiple, not negative. Throws DTypeError unless integers.
Tensor lcm(const Tensor& a, const Tensor& b);
/// a * log(b); 0 where a is 0 (NaN where b is NaN).
Tensor xlogy(const Tensor& a, const Tensor& b);
/// a + weight * (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, Scalar weight);
/// x + value * a * b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// x + value * a / b.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// @}

/// @name Functions of one argument
/// @{
Tensor neg(const Tensor& x);  ///< throws DTypeError for bool
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);     ///< -1, 0 or 1
Tensor sgn(const Tensor& x);      ///< sign, by its name for complex numbers, of which there are none
Tensor signbit(const Tensor& x);  ///< whether the sign bit is set, that of -0 too; bool
Tensor angle(const Tensor& x);    ///< pi below 0, NaN for NaN, else 0
Tensor deg2rad(const Tensor& x);  ///< x * pi / 180
Tensor rad2deg(const Tensor& x);  ///< x * 180 / pi
/// The mantissa, of size in [1/2, 1), and the exponent (i32) with x = mantissa * 2^exponent. Throws DTypeError for
/// integers.
std::tuple<Tensor, Tensor> frexp(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  ///< 1 / sqrt(x)
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);  ///< exp(x) - 1, accurate near 0
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);  ///< log(1 + x), accurate near 0
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);  ///< 1 - erf(x), accurate where that is small
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< halves to even
/// To so many decimals, halves to even; with a negative number to multiples of 10^-decimals.
Tensor round(const Tensor& x, int64_t decimals);
Tensor trunc(const Tensor& x);
Tensor frac(const Tensor& x);  ///< x - trunc(x)
/// x limited to [min, max]; std::nullopt leaves a side open, NaN stays. Throws ValueError without any bound.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt);
Tensor clamp_min(const Tensor& x, Scalar min);
Tensor clamp_max(const Tensor& x, Scalar max);
/// Bounds for each element, an undefined one open. x has the gradient where min <= x <= max. DTypeError for bool.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max);
/// NaN replaced by `nan`, infinities by `posinf` and `neginf` (the dtype's largest finite numbers when not given).
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// @}

/// @name Activations
/// @{
Tensor sigmoid(const Tensor& x);  ///< 1 / (1 + exp(-x))
Tensor tanh(const Tensor& x);
Tensor logsigmoid(const Tensor& x);
Tensor relu(const Tensor& x);  ///< max(x, 0); the gradient at 0 is 0
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1);  ///< x, or alpha * (exp(x) - 1) where negative
Tensor selu(const Tensor& x);                   ///< Klambauer et al., arXiv:1706.02515
Tensor relu6(const Tensor& x);                  ///< clamp(x, 0, 6); integers stay
/// x limited to [min, max]; integers stay, between the integers in that range. Throws DTypeError for bool.
Tensor hardtanh(const Tensor& x, double min = -1, double max = 1);
Tensor hardsigmoid(const Tensor& x);  ///< clamp(x / 6 + 1/2, 0, 1)
Tensor hardswish(const Tensor& x);    ///< x * hardsigmoid(x)
Tensor mish(const Tensor& x);         ///< x * tanh(softplus(x))
/// log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
/// x * Phi(x), Phi the normal distribution; approximate is "none" (by erf) or "tanh" (arXiv:1606.08415).
/// Throws ValueError for another form.
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
Tensor silu(const Tensor& x);  ///< x * sigmoid(x), also known as swish
/// @}

/// @name Gradients of activations, fused: g times the derivative
/// @{
Tensor sigmoid_backward(const Tensor& g, const Tensor& y);  ///< from the result y
Tensor tanh_backward(const Tensor& g, const Tensor& y);     ///< from the result y
Tensor relu_backward(const Tensor& g, const Tensor& y);     ///< from the result (or the argument)
Tensor leaky_relu_backward(const Tensor& g, const Tensor& x, double negative_slope);
Tensor elu_backward(const Tensor& g, const Tensor& x, double alpha);
Tensor hardtanh_backward(const Tensor& g, const Tensor& x, double min, double max);
Tensor hardswish_backward(const Tensor& g, const Tensor& x);
Tensor mish_backward(const Tensor& g, const Tensor& x);
Tensor softplus_backward(const Tensor& g, const Tensor& x, double beta, double threshold);
Tensor gelu_backward(const Tensor& g, const Tensor& x, std::string_view approximate = "none");
Tensor silu_backward(const Tensor& g, const Tensor& x);
/// @}

/// @name Comparisons and tests; results are bool
/// @{
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);
Tensor isreal(const Tensor& x);  ///< true everywhere: there are no complex tensors
/// |a - b| <= atol + rtol * |b|, or both equal infinities (or both NaN with equal_nan).
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether isclose() holds everywhere.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// Whether shapes and all elements are the same (NaN differs from itself).
bool equal(const Tensor& a, const Tensor& b);
/// @}

/// @name Bits of integers and bool; DTypeError for floating tensors
/// @{
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
/// a * 2^b; 0 for b outside [0, bits).
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
/// a / 2^b rounded down; 0 or -1 for b outside [0, bits).
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);
/// @}

/// `a` where `condition` (bool), else `b`. Throws DTypeError unless the condition is bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, Scalar b);

/// @name In place
/// @{
Tensor& sub_(Tensor& x, const Tensor& other, Scalar alpha = 1);
Tensor& sub_(Tensor& x, Scalar other);
Tensor& div_(Tensor& x, const Tensor& other);
Tensor& div_(Tensor& x, Scalar other);
Tensor& div_(Tensor& x, const Tensor& other, std::string_view rounding_mode);
Tensor& pow_(Tensor& x, Scalar exponent);
Tensor& neg_(Tensor& x);
Tensor& abs_(Tensor& x);
Tensor& sqrt_(Tensor& x);
Tensor& rsqrt_(Tensor& x);
Tensor& reciprocal_(Tensor& x);
Tensor& exp_(Tensor& x);
Tensor& log_(Tensor& x);
Tensor& sin_(Tensor& x);
Tensor& cos_(Tensor& x);
Tensor& floor_(Tensor& x);
Tensor& ceil_(Tensor& x);
Tensor& round_(Tensor& x, int64_t decimals = 0);
Tensor& trunc_(Tensor& x);
Tensor& sigmoid_(Tensor& x);
Tensor& tanh_(Tensor& x);
Tensor& relu_(Tensor& x);
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt);
Tensor& lerp_(Tensor& x, const Tensor& end, Scalar weight);
Tensor& addcmul_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor& addcdiv_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
/// @}

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator%(const Tensor& a, const Tensor& b) {
  return remainder(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}
inline Tensor operator+(const Tensor& a, Scalar b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, Scalar b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, Scalar b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, Scalar b) {
  return div(a, b);
}
inline Tensor operator%(const Tensor& a, Scalar b) {
  return remainder(a, b);
}
inline Tensor operator+(Scalar a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(Scalar a, const Tensor& b) {
  return rsub(b, a);
}
inline Tensor operator*(Scalar a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(Scalar a, const Tensor& b) {
  return div(wrap_number(a, b.device()), b);
}

/// Comparison operators are elementwise; equal() says whether two tensors are the same.
inline Tensor operator==(const Tensor& a, const Tensor& b) {
  return eq(a, b);
}
inline Tensor operator!=(const Tensor& a, const Tensor& b) {
  return ne(a, b);
}
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return lt(a, b);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return le(a, b);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return gt(a, b);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return ge(a, b);
}
inline Tensor operator==(const Tensor& a, Scalar b) {
  return eq(a, wrap_number(b, a.device()));
}
inline Tensor operator!=(const Tensor& a, Scalar b) {
  return ne(a, wrap_number(b, a.device()));
}
inline Tensor operator<(const Tensor& a, Scalar b) {
  return lt(a, wrap_number(b, a.device()));
}
inline Tensor operator<=(const Tensor& a, Scalar b) {
  return le(a, wrap_number(b, a.device()));
}
inline Tensor operator>(const Tensor& a, Scalar b) {
  return gt(a, wrap_number(b, a.device()));
}
inline Tensor operator>=(const Tensor& a, Scalar b) {
  return ge(a, wrap_number(b, a.device()));
}
inline Tensor operator&(const Tensor& a, const Tensor& b) {
  return bitwise_and(a, b);
}
inline Tensor operator|(const Tensor& a, const Tensor& b) {
  return bitwise_or(a, b);
}
inline Tensor operator^(const Tensor& a, const Tensor& b) {
  return bitwise_xor(a, b);
}
inline Tensor operator~(const Tensor& x) {
  return bitwise_not(x);
}

}  // namespace strata
