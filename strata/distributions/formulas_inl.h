#pragma once
// What the records' formulas share.

#include <cmath>
#include <limits>
#include <numbers>

#include "strata/distributions/record.h"
#include "strata/ops/ops.h"

namespace strata::distributions {

inline constexpr double kPi = std::numbers::pi;
inline constexpr double kEuler = std::numbers::egamma;
inline constexpr double kLn2 = std::numbers::ln2;
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline const double kLog2Pi = std::log(2 * kPi);

/// Throws a ValueError of `name` that says text() where not all of `inside` is true. Values are written out, and
/// fetched from their device, there alone.
template <class Text>
void check_values(const Tensor& inside, std::string_view name, const Text& text) {
  if (!all(inside).item<bool>()) throw ValueError(name, text());
}

/// x [.., n] of A x = b for lower triangles A [.., n, n] and vectors b [.., n]; batches broadcast.
Tensor solved(Tensor triangle, const Tensor& b);

/// The spacing of a dtype's numbers at 1.
inline double eps_of(DType t) {
  switch (t) {
    case DType::f64:
      return std::numeric_limits<double>::epsilon();
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return static_cast<double>(std::numeric_limits<float>::epsilon());
  }
}
/// Its smallest normal number.
inline double tiny_of(DType t) {
  switch (t) {
    case DType::f64:
      return std::numeric_limits<double>::min();
    case DType::f16:
      return 0x1p-14;
    default:
      return static_cast<double>(std::numeric_limits<float>::min());
  }
}
/// The least finite number.
inline double lowest_of(DType t) {
  return t == DType::f64    ? std::numeric_limits<double>::lowest()
         : t == DType::f16  ? -65504.0
         : t == DType::bf16 ? -0x1.fep127
                            : static_cast<double>(std::numeric_limits<float>::lowest());
}

/// Standard normal numbers, and uniform ones in [0, 1) and in the open interval, of the dtype and device of `like`.
inline Tensor normal_like(const Tensor& like, const Shape& shape, Generator& g) {
  const DeviceScope at(like.device());
  return strata::randn(shape, like.dtype(), g);
}
inline Tensor uniform_like(const Tensor& like, const Shape& shape, Generator& g) {
  const DeviceScope at(like.device());
  return strata::rand(shape, like.dtype(), g);
}
inline Tensor open_uniform_like(const Tensor& like, const Shape& shape, Generator& g) {
  const double least = eps_of(like.dtype()) / 2;
  return uniform_like(like, shape, g).clamp(least, 1 - least);
}
/// Numbers with the density exp(-x).
inline Tensor exponential_like(const Tensor& like, const Shape& shape, Generator& g) {
  return -log(open_uniform_like(like, shape, g));
}
/// Gamma numbers of rate 1, above 0.
inline Tensor gamma_of(const Tensor& concentration, const Shape& shape, Generator& g) {
  return clamp_min(strata::standard_gamma(concentration.expand(shape), g), tiny_of(concentration.dtype()));
}
/// The logarithm of a Cholesky triangle's determinant: half that of its matrix.
inline Tensor half_log_det(const Tensor& triangle) {
  return sum(diagonal(triangle, 0, -2, -1).log(), {-1});
}
/// Values along a first dimension, beside as many dimensions of size 1 as the batch has.
inline Tensor beside_batch(const Args& d, const Tensor& values) {
  Shape shape{values.size(0)};
  for (int i = 0; i < d.batch_shape().size(); ++i) shape.push_back(1);
  for (int64_t i = 1; i < values.dim(); ++i) shape.push_back(values.size(i));
  return values.view(shape);
}
/// log Gamma(a) + log Gamma(b) - log Gamma(a + b).
inline Tensor log_beta(const Tensor& a, const Tensor& b) {
  return lgamma(a) + lgamma(b) - lgamma(a + b);
}
/// The shape without its last `n` sizes, and those alone.
inline Shape without_right(const Shape& s, int64_t n) {
  return Shape(std::span<const int64_t>(s.begin(), s.end() - n));
}
inline Shape right(const Shape& s, int64_t n) {
  return Shape(std::span<const int64_t>(s.end() - n, s.end()));
}
inline Shape joined(Shape a, const Shape& b) {
  for (const int64_t n : b) a.push_back(n);
  return a;
}
/// 0, 1, ... n - 1 in the dtype and on the device of `like`.
inline Tensor counts_like(const Tensor& like, int64_t first, int64_t end) {
  const DeviceScope at(like.device());
  return strata::arange(first, end, 1, like.dtype());
}

/// Of probs and logits as parameters `probs` and probs + 1: the one from the other, each by itself.
inline Tensor odds(const Args& d, size_t i, size_t probs) {
  if (i != probs) return logit(d[probs], eps_of(d[probs].dtype()));
  return sigmoid(d[probs + 1]);
}
/// The same for classes along the last dimension.
inline Tensor class_odds(const Args& d, size_t i, size_t probs) {
  if (i == probs) return softmax(d[probs + 1], -1);
  const double eps = eps_of(d[probs].dtype());
  return d[probs].clamp(eps, 1 - eps).log();
}
/// Shares that sum to 1, and logarithms of such.
inline Tensor class_adjusted(bool probs, const Tensor& given) {
  return probs ? given / sum(given, {-1}, true) : given - logsumexp(given, {-1}, true);
}

/// @name The records of each file
/// @{
std::span<const DistributionRecord> line_records();
std::span<const DistributionRecord> positive_records();
std::span<const DistributionRecord> unit_records();
std::span<const DistributionRecord> vector_records();
std::span<const DistributionRecord> matrix_records();
std::span<const DistributionRecord> count_records();
std::span<const DistributionRecord> class_records();
/// @}

}  // namespace strata::distributions
