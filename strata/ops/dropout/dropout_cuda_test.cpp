// Dropout of tensors of any strides on a CUDA device: the processor's elements, whatever lies where.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(DropoutCuda, OfTensorsWithGapsDropsTheSameElements) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(5);
  for (const DType t : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = rand({37, 6, 75}).to(t), there = x.to(Device::cuda());
    const auto expect_same = [&](auto&& part) {
      for (const double p : {0.3, 0.99999999, 1.0}) {
        const Tensor want = dropout(part(x), p, RngKey{3, 11}), got = dropout(part(there), p, RngKey{3, 11});
        SCOPED_TRACE(cat(part(x), " p ", p));
        EXPECT_EQ(got.to(Device::cpu()).to_vector<double>(), want.to_vector<double>());
      }
    };
    expect_same([](const Tensor& v) { return v; });
    expect_same([](const Tensor& v) { return transpose(v, 0, 2); });
    expect_same([](const Tensor& v) { return transpose(v, 0, 1); });
    expect_same([](const Tensor& v) { return slice(v, 2, 1, 75, 2); });
    expect_same([](const Tensor& v) { return slice(v, 2, 3, 71); });
    expect_same([](const Tensor& v) { return v.select(1, 2).select(0, 3).expand({5, 75}); });
    expect_same([](const Tensor& v) { return slice(v, 0, 4, 4); });
  }
}

}  // namespace
}  // namespace strata
