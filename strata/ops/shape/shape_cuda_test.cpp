// Triangles of matrices of any strides on a CUDA device.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(ShapeCuda, TrianglesOfMatricesThatDoNotLieRowByRow) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(6);
  const Tensor x = randint(-9, 9, {3, 4, 33, 70}), there = x.to(Device::cuda());
  const auto expect_same = [&](auto&& part) {
    for (const int64_t diagonal : {-40, -1, 0, 5, 90}) {
      const Tensor a = part(x), b = part(there);
      SCOPED_TRACE(cat(a, " diagonal ", diagonal));
      EXPECT_EQ(triu(b, diagonal).to_vector<int64_t>(), triu(a, diagonal).to_vector<int64_t>());
      EXPECT_EQ(tril(b, diagonal).to_vector<int64_t>(), tril(a, diagonal).to_vector<int64_t>());
    }
  };
  expect_same([](const Tensor& v) { return v; });
  expect_same([](const Tensor& v) { return transpose(v, 2, 3); });
  expect_same([](const Tensor& v) { return transpose(v, 0, 1); });
  expect_same([](const Tensor& v) { return transpose(v, 1, 3); });
  expect_same([](const Tensor& v) { return slice(v, 3, 1, 70, 2); });
  expect_same([](const Tensor& v) { return slice(v, 2, 0, 33, 3).select(0, 1); });
  expect_same([](const Tensor& v) { return v.select(0, 0).select(0, 1).t(); });
  // Large, and far: through a copy.
  expect_same([](const Tensor& v) { return transpose(repeat(v.select(0, 0), {10, 16, 1}), 1, 2); });
}

}  // namespace
}  // namespace strata
