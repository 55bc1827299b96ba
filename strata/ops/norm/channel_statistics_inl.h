#pragma once
// What batch_norm's and group_norm's records give beside y, for the norms that keep running statistics.

#include <string_view>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata::channel_norm {

/// y, mean, 1 / standard deviation.
using Triple = std::tuple<Tensor, Tensor, Tensor>;

struct Sizes {
  int64_t batch = 0, channels = 0, inner = 1;
};
/// Of x [N, C, ...]; throws in the name of `op` where x, weight and bias do not fit.
Sizes checked(const Tensor& x, const Tensor& weight, const Tensor& bias, std::string_view op);

Triple batch_statistics(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
Triple group_statistics(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps);
/// The same in double precision; 0 groups: statistics over the batch.
Triple by_loops(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps);

}  // namespace strata::channel_norm
