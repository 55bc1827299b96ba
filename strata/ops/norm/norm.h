#pragma once
// Normalisation layers' functions.
// Weights and biases may be f32 where x is bf16 or f16 (master weights under autocast); results have x's dtype.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which must be `normalized_shape`; the
/// variance has divisor n. weight and bias, where given, have that shape (Ba et al., arXiv:1607.06450). Throws
/// ShapeError.
///   Tensor y = layer_norm(x, {512}, weight, bias);
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions (Zhang and Sennrich, arXiv:1910.07467).
/// PyTorch's default eps is that of x's dtype; here it is 1e-6 for every dtype.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, double eps = 1e-6);
/// Returns (rms_norm(s), s) or (layer_norm(s), s) with s = x + residual, in one pass over memory: a transformer block's
/// residual connection and the norm behind it.
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                        double eps = 1e-6);
std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                          const Tensor& bias, double eps = 1e-5);

/// Normalises each of `num_groups` groups of channels of each item of x [N, C, ...]; weight and bias are [C]
/// (Wu and He, arXiv:1803.08494). Throws ShapeError.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// Normalises each channel of x [N, C, ...] over everything else (Ioffe and Szegedy, arXiv:1502.03167). In training (or
/// without running statistics) with x's own mean and variance, which also enter running_mean and running_var, where
/// given, with weight `momentum` (the variance there with divisor n - 1); else with the running statistics.
/// Throws ShapeError.
Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5);

/// Normalises each channel of each item of x [N, C, ...] (Ulyanov et al., arXiv:1607.08022): by its own mean and
/// variance, whose means over the items also enter running_mean and running_var, where given, with weight `momentum`;
/// without use_input_stats by the running statistics. Throws ShapeError, ValueError.
Tensor instance_norm(const Tensor& x, Tensor running_mean = {}, Tensor running_var = {}, const Tensor& weight = {},
                     const Tensor& bias = {}, bool use_input_stats = true, double momentum = 0.1, double eps = 1e-5);

/// x over its p-norm along `dim`, or over eps where that is larger.
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12);
/// The slices of x along `dim` scaled down to a p-norm of at most `max_norm`. Throws ShapeError below two dimensions,
/// ValueError unless p and max_norm are positive.
Tensor renorm(const Tensor& x, double p, int64_t dim, double max_norm);
/// x [N, C, ..] over (k + alpha m)^beta, m being the mean of the squares of `size` channels around each (Krizhevsky et
/// al., 2012). Throws ShapeError, ValueError.
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

}  // namespace strata
