// Products by groups of rows on a card, against sums in double precision: several tiles, groups that are empty or end
// within a tile, odd sizes, both ways that a weight may lie.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

class GroupedCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static void expect_near(const Tensor& got, const Tensor& want, double bound) {
    const std::vector<double> a = got.to(Device::cpu()).to(DType::f64).to_vector<double>(),
                              b = want.to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound * (1 + std::fabs(b[i]))) << "element " << i;
  }
};

TEST_F(GroupedCuda, EveryDTypeAndSize) {
  const Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 3, 3, 700, 1000, 1001}, {6}),
               there = offsets.to(Device::cuda());
  for (const DType t : {DType::bf16, DType::f16, DType::f32, DType::f64})
    for (const auto& [m, k] : {std::array<int64_t, 2>{264, 520}, {75, 131}, {1500, 72}}) {
      SCOPED_TRACE(cat(t, ", ", m, " x ", k));
      manual_seed(1);
      const Tensor x = uniform({1001, k}, -1, 1).to(t), w = uniform({5, m, k}, -1, 1).to(t),
                   g = uniform({1001, m}, -1, 1).to(t);
      const Tensor x64 = x.to(DType::f64), w64 = w.to(DType::f64), g64 = g.to(DType::f64);
      const Tensor xc = x.to(Device::cuda()), wc = w.to(Device::cuda()), gc = g.to(Device::cuda());
      const double bound = t == DType::bf16 ? 1e-2 : t == DType::f16 ? 2e-3 : t == DType::f32 ? 5e-5 : 1e-12;
      expect_near(grouped_linear(xc, wc, there), grouped_linear(x64, w64, offsets), bound);
      expect_near(grouped_linear(gc, wc.transpose(1, 2), there), grouped_linear(g64, w64.transpose(1, 2), offsets),
                  bound);
      expect_near(grouped_outer(gc, xc, there), grouped_outer(g64, x64, offsets), bound);
    }
}

TEST_F(GroupedCuda, TheSameBitsEachTime) {
  manual_seed(2);
  const Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 900, 1100, 3000}, {4}).to(Device::cuda());
  const Tensor x = uniform({3000, 512}, -1, 1).to(DType::bf16).to(Device::cuda()),
               w = uniform({3, 768, 512}, -1, 1).to(DType::bf16).to(Device::cuda());
  const auto bits = [](const Tensor& t) { return t.to(Device::cpu()).to(DType::f32).to_vector<float>(); };
  const std::vector<float> y = bits(grouped_linear(x, w, offsets)), o = bits(grouped_outer(x, x, offsets));
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(bits(grouped_linear(x, w, offsets)), y);
    ASSERT_EQ(bits(grouped_outer(x, x, offsets)), o);
  }
}

}  // namespace
}  // namespace strata
