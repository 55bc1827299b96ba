// Normalisation by given statistics on a CUDA device: rows of vectors, two pieces a thread, and what lies otherwise.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(RunningNormCuda, AsOnTheProcessor) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(8);
  const Device card = Device::cuda();
  for (const Shape& shape : {Shape{3, 5, 16, 8}, {2, 7, 9}, {4, 6}, {33, 64, 4112}, {0, 3, 8}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = randn(shape).to(t), mean = randn({shape[1]}), var = rand({shape[1]}) + 0.5;
      const Tensor weight = randn({shape[1]}), bias = randn({shape[1]});
      for (const bool affine : {false, true}) {
        SCOPED_TRACE(cat(x, " affine ", affine));
        const auto normalized = [&](const Tensor& v, Device d) {
          const DType own = v.dtype() == DType::f64 ? DType::f64 : DType::f32;
          const auto on = [&](const Tensor& p) { return p.to(d).to(own); };
          return batch_norm(v, on(mean), on(var), affine ? on(weight) : Tensor(), affine ? on(bias) : Tensor(), false);
        };
        const Tensor want = normalized(x.to(DType::f64), Device::cpu());
        const double bound = t == DType::bf16 ? 2e-2 : t == DType::f32 ? 1e-5 : 1e-6;
        for (const bool turned : {false, true}) {
          const Tensor there = turned ? transpose(transpose(x.to(card), 0, 1).contiguous(), 0, 1) : x.to(card);
          const Tensor got = normalized(there, card).to(Device::cpu()).to(DType::f64);
          ASSERT_EQ(got.shape(), want.shape());
          if (got.numel() == 0) continue;
          EXPECT_LT(max(abs(got - want) / (abs(want) + 1)).item(), bound);
        }
      }
    }
}

}  // namespace
}  // namespace strata
