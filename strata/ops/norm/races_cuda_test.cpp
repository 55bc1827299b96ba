// The smallest calls that take each kernel of the norms' gradients, for compute-sanitizer --tool racecheck.
//
// That tool names hazards between the columns' sums of ring_backward_kernel, written before its last __syncthreads()
// and read behind it, where threads of a row have met at barriers of their own before. There is none: every thread of
// the block comes to that barrier (the one return before it is for all), it is barrier 0, and rows meet at barriers 1
// and on. So two cases beside each other tell what the tool follows: `n` of one warp a row, which meet at no other
// barrier and then run the same code, and rows of which each group of threads has as many as any other.

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

// Rows of as many elements, and whether of RMS norm.
using Param = std::tuple<int64_t, DType, bool, bool>;

std::string name_of_case(const ::testing::TestParamInfo<Param>& info) {
  const auto& [n, dtype, rms, even] = info.param;
  return cat(rms ? "rms" : "layer", "_", name_of(dtype), "_", n, even ? "_even" : "");
}

class NormRaces : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_P(NormRaces, Backward) {
  const auto& [n, dtype, rms, even] = GetParam();
  // With `even`, of rows of 64 threads, a block's eight groups have two each.
  const int64_t rows = even ? int64_t{16} * cuda::properties().multiprocessors : 37;
  const auto run = [&, n = n, dtype = dtype, rms = rms](Device device, DType computed) {
    manual_seed(5);
    const auto drawn = [&](const Shape& shape) { return randn(shape).to(dtype).to(computed).to(device); };
    TensorList in{drawn({rows, n}).set_requires_grad(), drawn({n}).set_requires_grad()};
    if (!rms) in.push_back(drawn({n}).set_requires_grad());
    const Tensor y = rms ? rms_norm(in[0], {n}, in[1]) : layer_norm(in[0], {n}, in[1], in[2]);
    return grad({y}, in, {drawn({rows, n})}, false);
  };
  const TensorList want = run(Device::cpu(), DType::f64), got = run(Device::cuda(), dtype);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(difference(got[i], want[i]), dtype == DType::f32 ? 1e-5 : 2e-2) << i;
}

// f32: a warp, then 64, 128, 256 and 512 threads a row, two and four vectors each; the last is a cluster's.
INSTANTIATE_TEST_SUITE_P(Kernels, NormRaces,
                         ::testing::Combine(::testing::Values(384, 400, 1000, 2000, 4000, 8000, 16000),
                                            ::testing::Values(DType::f32), ::testing::Bool(), ::testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Even, NormRaces,
                         ::testing::Combine(::testing::Values(384, 400), ::testing::Values(DType::f32),
                                            ::testing::Bool(), ::testing::Values(true)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Halves, NormRaces,
                         ::testing::Combine(::testing::Values(768, 16000), ::testing::Values(DType::bf16),
                                            ::testing::Bool(), ::testing::Values(false)),
                         name_of_case);

}  // namespace
}  // namespace strata
