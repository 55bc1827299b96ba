// Elementwise functions on a CUDA device beside the processor's: bytes, which come out of words, and layouts.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

class ElementwiseCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

// All pairs of bytes; all but one begin off a word in the second round.
TEST_F(ElementwiseCuda, PairsOfBytes) {
  for (const DType t : {DType::u8, DType::i8, DType::i16})
    for (const int64_t begin : {0, 1}) {
      const Tensor all = arange(0, 256, 1, DType::i64), n = all.to(t);
      const Tensor a = slice(n.unsqueeze(1).expand({256, 256}).reshape({65536}), 0, begin, 65536);
      const Tensor b = slice(n.expand({256, 256}).reshape({65536}), 0, begin, 65536);
      const Tensor da = a.to(Device::cuda()), db = b.to(Device::cuda());
      const auto expect_same = [&](const char* name, auto&& f) {
        SCOPED_TRACE(cat(name, " of ", a));
        EXPECT_EQ(f(da, db).template to_vector<int64_t>(), f(a, b).template to_vector<int64_t>());
      };
      using Pair = const Tensor&;
      expect_same("and", [](Pair x, Pair y) { return bitwise_and(x, y); });
      expect_same("or", [](Pair x, Pair y) { return bitwise_or(x, y); });
      expect_same("xor", [](Pair x, Pair y) { return bitwise_xor(x, y); });
      expect_same("not", [](Pair x, Pair) { return bitwise_not(x); });
      expect_same("left", [](Pair x, Pair y) { return bitwise_left_shift(x, y); });
      expect_same("right", [](Pair x, Pair y) { return bitwise_right_shift(x, y); });
      expect_same("gcd", [](Pair x, Pair y) { return gcd(x, y); });
      expect_same("lcm", [](Pair x, Pair y) { return lcm(x, y); });
      expect_same("add", [](Pair x, Pair y) { return x + y; });
      expect_same("mul", [](Pair x, Pair y) { return x * y; });
      expect_same("less", [](Pair x, Pair y) { return x < y; });
      expect_same("maximum", [](Pair x, Pair y) { return maximum(x, y); });
      expect_same("and of bool", [](Pair x, Pair y) { return bitwise_and(x > 100, y > 7); });
      expect_same("where", [](Pair x, Pair y) { return where(x > y, x, y); });
    }
}

TEST_F(ElementwiseCuda, FrexpOfTurnedTensors) {
  manual_seed(3);
  const Tensor x = randn({33, 6, 71}) * 100, there = x.to(Device::cuda());
  for (const Dims& order : {Dims{0, 1, 2}, Dims{2, 1, 0}, Dims{1, 0, 2}})
    for (const int64_t step : {1, 2}) {
      const auto part = [&](const Tensor& v) { return slice(permute(v, order), 2, 0, 71, step); };
      SCOPED_TRACE(cat(part(x)));
      const auto [m, e] = frexp(part(x));
      const auto [dm, de] = frexp(part(there));
      EXPECT_EQ(dm.to_vector<float>(), m.to_vector<float>());
      EXPECT_EQ(de.to_vector<int64_t>(), e.to_vector<int64_t>());
    }
}

}  // namespace
}  // namespace strata
