#pragma once
// What the tests of parametrisations share.

#include <gtest/gtest.h>

#include "strata/nn/layers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {

inline double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  return amax(abs(a - b)).item();
}
inline Linear linear64(int64_t in, int64_t out, bool bias = true) {
  Linear layer(in, out, bias);
  layer.to(DType::f64);
  return layer;
}
inline Tensor data(const Shape& shape) {
  return randn(shape, DType::f64);
}

}  // namespace strata::nn
