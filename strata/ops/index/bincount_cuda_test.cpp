// Counts on a CUDA device against the CPU's: values within and beyond the counters in shared memory, every dtype,
// unaligned elements, weights the same bits in every call.

#include <cstring>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/index/index.h"
#include "strata/strata.h"

namespace strata {
namespace {

class BincountCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static Tensor on(const Tensor& t) { return t.to(Device::cuda()); }
};

TEST_F(BincountCuda, EveryRange) {
  manual_seed(21);
  for (const int64_t values : {1, 7, 100, 32768, 32769, 100000})
    for (const int64_t n : {1, 31, 40000, 3000001}) {
      const Tensor x = randint(0, values, {n}), dx = on(x);
      SCOPED_TRACE(cat(values, " values, ", n, " elements"));
      const std::vector<int64_t> want = bincount(x).to_vector<int64_t>();
      EXPECT_EQ(bincount(dx).to_vector<int64_t>(), want);
      if (n > 1) {
        EXPECT_EQ(bincount(dx.narrow(0, 1, n - 1)).to_vector<int64_t>(),
                  bincount(x.narrow(0, 1, n - 1)).to_vector<int64_t>());
      }
      EXPECT_EQ(bincount(dx, {}, 40000).to_vector<int64_t>(), bincount(x, {}, 40000).to_vector<int64_t>());
    }
}

TEST_F(BincountCuda, DtypesAndErrors) {
  manual_seed(22);
  for (const DType t : {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    const Tensor x = randint(0, 128, {100003}).to(t);
    EXPECT_EQ(bincount(on(x)).to_vector<int64_t>(), bincount(x).to_vector<int64_t>());
    if (t != DType::u8) {
      const Tensor below = x - 1;
      EXPECT_THROW(bincount(on(below)), ValueError);
    }
  }
  EXPECT_EQ(bincount(on(zeros({0}, DType::i64)), {}, 3).to_vector<int64_t>(), std::vector<int64_t>({0, 0, 0}));
}

TEST_F(BincountCuda, WeightsAreTheSameBits) {
  manual_seed(23);
  const Tensor x = on(randint(0, 1000, {200000})), w = on(randn({200000}));
  const Tensor first = bincount(x, w).to(Device::cpu()), second = bincount(x, w).to(Device::cpu());
  ASSERT_EQ(first.shape(), second.shape());
  EXPECT_EQ(std::memcmp(first.raw_data(), second.raw_data(), static_cast<size_t>(first.nbytes())), 0);
  const Tensor want = bincount(x.to(Device::cpu()), w.to(Device::cpu()));
  for (int64_t i = 0; i < want.numel(); ++i) EXPECT_NEAR(first.data<float>()[i], want.data<float>()[i], 1e-3);
}

}  // namespace
}  // namespace strata
