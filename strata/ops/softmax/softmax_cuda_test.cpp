// Softmax of few long rows on a CUDA device, which are cut into parts.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(SoftmaxCuda, FewLongRowsInParts) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(21);
  constexpr double kInf = INFINITY;
  for (const Shape& shape : {Shape{1, 262144}, {3, 40003}, {32, 32768}, {33, 32768}, {2, 1000000}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = (randn(shape) * 3).to(t);
      x.slice(1, 5, 9000).fill_(-kInf);  // more than a part
      x.select(0, shape[0] - 1).slice(0, shape[1] - 1, shape[1]).fill_(30);
      const Tensor there = x.to(Device::cuda()), fine = x.to(DType::f64);
      SCOPED_TRACE(cat(x));
      // Relative, down to `least`: a logarithm next to 0 has the digits of the scores that it is a difference of.
      const auto near = [&](const Tensor& got, const Tensor& want, double bound, double least) {
        const Tensor a = got.to(Device::cpu()).to(DType::f64), finite = where(want > -kInf, want, 0.0);
        EXPECT_LT(max(abs(where(want > -kInf, a, 0.0) - finite) / (abs(finite) + least)).item(), bound);
        EXPECT_TRUE(all(eq(a == -kInf, want == -kInf)).item<bool>());
      };
      const double bound = t == DType::bf16 ? 1e-2 : t == DType::f32 ? 2e-5 : 1e-9;
      near(softmax(there, 1), softmax(fine, 1), bound, 1e-7);
      near(log_softmax(there, 1), log_softmax(fine, 1), bound, 30);
      EXPECT_EQ(softmax(there, 1).to_vector<float>(), softmax(there, 1).to_vector<float>());
    }
  const Tensor broken = zeros({1, 70000}).to(Device::cuda());
  broken.slice(1, 40000, 40001).fill_(NAN);
  EXPECT_TRUE(all(isnan(softmax(broken, 1))).item<bool>());
  EXPECT_TRUE(all(isnan(softmax(full({1, 70000}, -kInf).to(Device::cuda()), 1))).item<bool>());
}

}  // namespace
}  // namespace strata
