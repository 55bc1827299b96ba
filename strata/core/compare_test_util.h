#pragma once
// For tests that compare results of two devices or dtypes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// The norm of the difference over that of what is wanted; 1 where the sizes differ.
inline double difference(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.detach().to_vector<double>(), b = want.detach().to_vector<double>();
  if (a.size() != b.size()) return 1;
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / std::max(size, 1e-60));
}

}  // namespace strata
