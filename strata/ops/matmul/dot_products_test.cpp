// Sums of products of vectors on the processor, the kernels' own sources, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/matmul/dot_products.cuh"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace strata::cuda {
namespace {

struct Single {  // a type of this file, so that the kernels are this program's own
  float v;
  Single() = default;
  explicit Single(float x) : v(x) {}
  explicit operator float() const { return v; }
};

// count vectors of k elements `step` apart; with several parts the second kernel follows.
template <int kVector>
void expect_dots(int64_t count, int64_t k, int64_t step, uint64_t seed, double alpha = 1, double beta = 0) {
  SCOPED_TRACE(cat(count, " x ", k, ", step ", step, ", vectors of ", kVector));
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto numbers = [&](int64_t n) {
    std::vector<Single> x(static_cast<size_t>(n));
    for (Single& a : x) a.v = static_cast<float>(random() % 2001) / 1000 - 1;
    return x;
  };
  const int64_t row = (k * step + 3) / 4 * 4;
  const std::vector<Single> a = numbers(count * row + 4), b = numbers(count * row + 4);
  std::vector<Single> c = numbers(count * 3);
  const std::vector<Single> before = c;
  const DotPlan plan = plan_dots(count, k, kVector);
  std::vector<float> partial(static_cast<size_t>(count * plan.parts), NAN);
  const DotProducts g{a.data(), b.data(), c.data(), partial.data(), count, k,     plan.slice, plan.parts,
                      step,     step,     row,      row,            3,     alpha, beta};
  const auto blocks = [&](int64_t items, int team) {
    return static_cast<unsigned>((items + kDotThreads / team - 1) / (kDotThreads / team));
  };
  const auto kernel = plan.team == 32 ? dot_kernel<Single, Single, float, kVector, 32>
                                      : dot_kernel<Single, Single, float, kVector, kDotThreads>;
  ASSERT_EQ(tile::emulation::launch(kernel, blocks(count * plan.parts, plan.team), kDotThreads, kDotSharedBytes, seed, g),
            "");
  if (plan.parts > 1) {
    const auto add = add_dot_parts_kernel<Single, Single, float>;
    ASSERT_EQ(tile::emulation::launch(add, blocks(count, 32), kDotThreads, 0, seed, g), "");
  }
  for (int64_t i = 0; i < count; ++i) {
    double want = 0;
    for (int64_t l = 0; l < k; ++l) {
      const auto at = static_cast<size_t>(i * row + l * step);
      want += static_cast<double>(a[at].v) * static_cast<double>(b[at].v);
    }
    want *= alpha;
    if (beta != 0) want += beta * static_cast<double>(before[static_cast<size_t>(3 * i)].v);
    ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(3 * i)].v), want, 1e-6 * (1 + std::sqrt(static_cast<double>(k)) * std::abs(alpha))) << i;
    for (const int64_t beside : {3 * i + 1, 3 * i + 2})  // results lie 3 apart
      ASSERT_EQ(c[static_cast<size_t>(beside)].v, before[static_cast<size_t>(beside)].v);
  }
}

TEST(DotProducts, AreTheSums) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  expect_dots<4>(1, 1, 1, 0);
  expect_dots<4>(1, 7, 1, 1);
  expect_dots<4>(19, 515, 1, 2);              // a warp each, a rest of three
  expect_dots<1>(19, 515, 3, 3, 2, 0.5);      // steps between elements
  expect_dots<4>(3, 5003, 1, 4);              // a block each
  expect_dots<4>(2, 40003, 1, 5, -1.5, 1);    // several parts, the last one short
  expect_dots<1>(1, 9001, 2, 6);
}

TEST(DotProducts, PartsCoverAVector) {
  for (const int64_t count : {1, 7, 132, 2000})
    for (const int64_t k : {0, 1, 1024, 1025, 4096, 16385, 1 << 20, 1 << 24})
      for (const int vector : {1, 4, 8}) {
        const DotPlan p = plan_dots(count, k, vector);
        EXPECT_GE(p.parts * p.slice, k);
        EXPECT_GE(p.parts, 1) << count << ' ' << k;
        if (p.parts > 1) {
          EXPECT_LT((p.parts - 1) * p.slice, k) << "an empty part";
          EXPECT_EQ(p.slice % (kDotThreads * vector), 0);
          EXPECT_LE(p.parts * count, 1056);
        }
      }
}

}  // namespace
}  // namespace strata::cuda
