#pragma once
// What running statistics of channels become after a batch.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// What an update of running statistics is made of.
struct RunningUpdate {
  double momentum = 0.1, eps = 1e-5;
  double unbiased = 1;  ///< n / (n - 1)
};
/// new_mean = running_mean (1 - momentum) + mean momentum and the same of the variance, (1 / rstd^2 - eps) times
/// unbiased. All [C], contiguous, f32 or all f64; on a CUDA device's current stream.
void running_statistics_cuda(Tensor& new_mean, Tensor& new_var, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& mean, const Tensor& rstd, const RunningUpdate& update);

namespace detail {
/// The fused record of it, for tensors [C] of one dtype, f32 or f64.
std::tuple<Tensor, Tensor> running_statistics(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean,
                                              const Tensor& rstd, const RunningUpdate& update);
}  // namespace detail

}  // namespace strata
