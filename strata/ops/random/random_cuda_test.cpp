// Random numbers on a CUDA device are the CPU's.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

class CudaRandom : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  // What `draw` makes on each device from the same seed.
  template <class F>
  static void same(F&& draw, double tolerance = 0) {
    const auto on = [&](Device device) {
      DeviceScope scope(device);
      manual_seed(11);
      draw();  // a second draw begins within the stream
      const Tensor t = draw();
      EXPECT_EQ(t.device(), device);
      return t.template to_vector<double>();
    };
    const std::vector<double> want = on(Device::cpu()), got = on(Device::cuda());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
  }
};

TEST_F(CudaRandom, UniformNumbersHaveTheSameBits) {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    same([&] { return uniform({1031}, -1.7, 3.3, t); });
    same([&] { return uniform({7, 3}, 0, 1, t); });
  }
}

TEST_F(CudaRandom, IntegersOrdersAndDrawsAreTheSame) {
  for (DType t : {DType::i64, DType::i32, DType::u8, DType::boolean, DType::f32})
    same([&] { return randint(0, 2, {513}, t); });
  same([] { return randint(-5, int64_t{1} << 60, {77}); });
  // Of each number of first bits, in which some keys agree.
  for (const int64_t n : {1, 2, 4, 5, 1000, 1024, 5001, 262144, 262145, 3000000}) same([n] { return randperm(n); });
  same([] { return bernoulli(rand({999})); });
  same([] { return multinomial(rand({5, 301}), 40, true); });
  same([] { return multinomial(rand({5, 301}), 40, false); });
  same([] { return multinomial(rand({1000}), 1); });
}

TEST_F(CudaRandom, NormalNumbersHaveTheSameBits) {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    same([&] { return normal({1031}, 0.5, 2, t); });
    same([&] { return normal({300, 1001}, 0, 0.02, t); });
  }
}

TEST_F(CudaRandom, TruncatedNormalNumbersAreTheSameButForTheLastBits) {
  for (DType t : {DType::f32, DType::f64}) {
    same(
        [&] {
          Tensor x = empty({{100, 3}, t, default_device(), std::nullopt});
          trunc_normal_(x, 0.2, 1.5, -1, 2);
          return x;
        },
        t == DType::f64 ? 1e-13 : 2e-6);
  }
}

TEST_F(CudaRandom, DropoutDropsTheSameElements) {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    same([&] { return dropout(ones({4, 259}, t), 0.3); });
    same([&] { return dropout(ones({4, 259}, t).t(), 0.3); });
  }
}

}  // namespace
}  // namespace strata
