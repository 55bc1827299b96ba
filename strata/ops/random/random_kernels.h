#pragma once
// Kernels of the random ops. Element i of a result depends on the key and on i only.
#include <cmath>
#include <concepts>
#include <numbers>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {
/// Counter blocks that `n` elements of `dtype` use up.
uint64_t random_blocks(int64_t n, DType dtype);
/// The same for a tensor of `shape`, of which nothing has been checked yet: of one that cannot be, any number.
uint64_t random_blocks(const Shape& shape, DType dtype);
/// philox()'s numbers of counter blocks [first, first + blocks), four each, in order: by lanes.
void draw_bits(RngKey key, uint64_t first, int64_t blocks, uint32_t* out);

void uniform_cpu(Tensor& y, const Shape& shape, double low, double high, RngKey key, DType dtype, Device device);
void normal_cpu(Tensor& y, const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device);
void trunc_normal_cpu(Tensor& y, const Shape& shape, double mean, double std, double low, double high, RngKey key,
                      DType dtype, Device device);
void randint_cpu(Tensor& y, int64_t low, int64_t high, const Shape& shape, RngKey key, DType dtype, Device device);
void bernoulli_cpu(Tensor& y, const Tensor& p, RngKey key);
void multinomial_cpu(Tensor& y, const Tensor& weights, int64_t num_samples, bool replacement, RngKey key);
void randperm_cpu(Tensor& y, int64_t n, RngKey key, Device device);

/// The same numbers on a CUDA device; those of trunc_normal but for the last bits of logarithms. Probabilities and
/// weights are not checked there: one that is not a probability, or a row without weights, gives some number.
/// @{
void uniform_cuda(Tensor& y, const Shape& shape, double low, double high, RngKey key, DType dtype, Device device);
void normal_cuda(Tensor& y, const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device);
void trunc_normal_cuda(Tensor& y, const Shape& shape, double mean, double std, double low, double high, RngKey key,
                       DType dtype, Device device);
void randint_cuda(Tensor& y, int64_t low, int64_t high, const Shape& shape, RngKey key, DType dtype, Device device);
void bernoulli_cuda(Tensor& y, const Tensor& p, RngKey key);
void multinomial_cuda(Tensor& y, const Tensor& weights, int64_t num_samples, bool replacement, RngKey key);
void randperm_cuda(Tensor& y, int64_t n, RngKey key, Device device);
/// @}

/// Inverse of the standard normal distribution function: P. J. Acklam's rational approximation, then one step of
/// Halley's method, which brings it to double precision. constexpr so that it compiles for CUDA devices too, a template
/// because compilers check a plain constexpr function for calls that cannot be.
template <std::same_as<double> Real>
constexpr Real inverse_normal(Real p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  const auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  double x = 0;
  if (p < 0.02425) {
    x = tail(std::sqrt(-2 * std::log(p)));
  } else if (p > 1 - 0.02425) {
    x = -tail(std::sqrt(-2 * std::log(1 - p)));
  } else {
    const double q = p - 0.5, r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  const double e = 0.5 * std::erfc(-x / std::numbers::sqrt2) - p;
  const double u = e * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
  return x - u / (1 + x * u / 2);
}
namespace detail {
/// Normal numbers of a key of one's own, for what is composed of them.
Tensor normal_of(const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device);
}  // namespace detail

}  // namespace strata
