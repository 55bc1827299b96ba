// weight_norm along dimensions that are not the first on a CUDA device: of columns, of planes, with g beside or across.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(WeightNormCuda, AlongAnyDimension) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(12);
  for (const Shape& shape : {Shape{512, 515}, {70, 3}, {33, 64, 70}, {20000, 5}, {4, 3, 5, 6}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64})
      for (int64_t dim = 0; dim < shape.size(); ++dim) {
        const Tensor v = randn(shape).to(t);
        Shape beside = Shape::filled(shape.size(), 1), across = beside;
        beside[static_cast<int>(dim)] = shape[static_cast<int>(dim)];
        across[dim == 0 ? 1 : 0] = shape[dim == 0 ? 1 : 0];
        for (const Shape& of_g : {beside, across}) {
          const Tensor g = randn(of_g).to(t);
          SCOPED_TRACE(cat(v, " g ", g, " dim ", dim));
          const Tensor want = weight_norm(v.to(DType::f64), g.to(DType::f64), dim);
          const Tensor got = weight_norm(v.to(Device::cuda()), g.to(Device::cuda()), dim);
          ASSERT_EQ(got.dtype(), t);
          const double bound = t == DType::bf16 ? 1e-2 : t == DType::f32 ? 1e-5 : 1e-12;
          EXPECT_LT(max(abs(got.to(Device::cpu()).to(DType::f64) - want)).item(), bound * max(abs(want)).item());
        }
      }
}

}  // namespace
}  // namespace strata
