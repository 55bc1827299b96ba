// Columns on a CUDA device against the CPU's.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/columns/columns.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

TEST(CudaColumns, HaveTheCpusElements) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(1);
  struct Case {
    Dims kernel, dilation, padding, stride;
  };
  for (const Case& c : {Case{{3}, {1}, {1}, {1}}, {{2, 5}, {3, 1}, {0, 4}, {2, 3}}, {{1}, {1}, {0}, {4}}}) {
    const Tensor x = randn({3, 5, 37, 41}), there = x.to(Device::cuda());
    const Tensor y = im2col(x, c.kernel, c.dilation, c.padding, c.stride);
    const Tensor columns = im2col(there, c.kernel, c.dilation, c.padding, c.stride);
    EXPECT_EQ(columns.to_vector<float>(), y.to_vector<float>());
    EXPECT_EQ(col2im(columns, {37, 41}, c.kernel, c.dilation, c.padding, c.stride).to_vector<float>(),
              col2im(y, {37, 41}, c.kernel, c.dilation, c.padding, c.stride).to_vector<float>());
  }
}

}  // namespace
}  // namespace strata
