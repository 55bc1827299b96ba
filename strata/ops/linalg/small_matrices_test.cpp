// The kernels for small matrices, on the processor: reflections against their products in double precision, and the
// signs of vectors.

#define STRATA_TILE_EMULATION
#include "strata/ops/linalg/oriented.cuh"
#include "strata/ops/linalg/reflections.cuh"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace strata::linalg {
namespace {

struct Here;  // keeps the kernels apart from the library's
using cuda::tile::emulation::kRuns;
using cuda::tile::emulation::launch;

struct Sizes {
  int m, n, columns, warps;
};

std::vector<float> random_numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(count);
  for (float& x : v) x = static_cast<float>(random() % 2001) / 1000 - 1;
  return v;
}

TEST(SmallMatrices, ReflectionsMakeOrthonormalColumnsAndATriangle) {
  if (!kRuns) GTEST_SKIP() << "fibers do not run in this build";
  for (const auto& [m, n, columns, warps] :
       {Sizes{1, 1, 1, 1}, {5, 3, 3, 2}, {3, 5, 3, 2}, {5, 3, 5, 3}, {34, 33, 33, 8}, {70, 3, 3, 1}, {32, 32, 32, 8}}) {
    for (const uint64_t seed : {0, 1}) {
      constexpr int kBatch = 2;
      const int k = std::min(m, n), rows_of_r = columns == m ? m : k;
      const auto all = [&](int rows, int cols) {
        return std::vector<float>(static_cast<size_t>(kBatch * rows * cols));
      };
      const std::vector<float> a = random_numbers(static_cast<size_t>(kBatch * m * n), 3);
      std::vector<float> vectors = all(m, n), tau = all(1, k), r = all(rows_of_r, n), q = all(m, columns),
                         again = all(m, columns);
      const auto bytes = static_cast<size_t>(reflections_bytes<float>(m, n, warps));
      const auto threads = static_cast<unsigned>(32 * warps);
      EXPECT_EQ(launch(&reflections_kernel<float, Here>, kBatch, threads, bytes, seed,
                       Reflections<float>{a.data(), nullptr, vectors.data(), tau.data(), r.data(), q.data(), m, n, k,
                                          rows_of_r, columns}),
                "");
      if (n <= m && columns == n) {
        EXPECT_EQ(launch(&reflections_kernel<float, Here>, kBatch, threads, bytes, seed,
                         Reflections<float>{vectors.data(), tau.data(), nullptr, nullptr, nullptr, again.data(), m, n,
                                            k, 0, columns}),
                  "");
        EXPECT_EQ(again, q);
      }
      for (int b = 0; b < kBatch; ++b) {
        const float *const A = a.data() + b * m * n, *const Q = q.data() + b * m * columns,
                           *const R = r.data() + b * rows_of_r * n;
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int l = 0; l < std::min(columns, rows_of_r); ++l) sum += double{Q[i * columns + l]} * R[l * n + j];
            ASSERT_NEAR(sum, A[i * n + j], 1e-5) << m << " x " << n << ", matrix " << b << " at " << i << ", " << j;
          }
        for (int i = 0; i < columns; ++i)
          for (int j = 0; j < columns; ++j) {
            double sum = 0;
            for (int l = 0; l < m; ++l) sum += double{Q[l * columns + i]} * Q[l * columns + j];
            ASSERT_NEAR(sum, i == j, 1e-5) << m << " x " << n << ", columns " << i << " and " << j;
          }
        for (int i = 0; i < rows_of_r; ++i)
          for (int j = 0; j < std::min(i, n); ++j) ASSERT_EQ(R[i * n + j], 0);
        // The first column goes to the side opposite to its head, as LAPACK has it.
        if (m > 1) {
          EXPECT_LT(R[0] * A[0], 0);
        }
      }
    }
  }
}

TEST(SmallMatrices, ReflectionsOfZerosAndOfExtremes) {
  if (!kRuns) GTEST_SKIP() << "fibers do not run in this build";
  // Columns of zeros and of one number below the diagonal, whose squares would be out of f32's range.
  const std::vector<float> a = {0, 3e30f, 1e-30f, 0, 4e30f, 0, 0, 0, 0};
  std::vector<float> tau(3), r(9), q(9);
  EXPECT_EQ(launch(&reflections_kernel<float, Here>, 1, 64, static_cast<size_t>(reflections_bytes<float>(3, 3, 2)), 0,
                   Reflections<float>{a.data(), nullptr, nullptr, tau.data(), r.data(), q.data(), 3, 3, 3, 3, 3}),
            "");
  EXPECT_EQ(tau[0], 0);
  EXPECT_EQ(tau[1], 0);
  EXPECT_EQ(tau[2], 0);
  EXPECT_EQ(r, (std::vector<float>{0, 3e30f, 1e-30f, 0, 4e30f, 0, 0, 0, 0}));
  const std::vector<float> b = {3e30f, 4e30f};
  EXPECT_EQ(launch(&reflections_kernel<float, Here>, 1, 64, static_cast<size_t>(reflections_bytes<float>(2, 1, 2)), 0,
                   Reflections<float>{b.data(), nullptr, nullptr, tau.data(), r.data(), q.data(), 2, 1, 1, 1, 1}),
            "");
  EXPECT_NEAR(r[0] / -5e30f, 1, 1e-6);
  EXPECT_NEAR(q[0], -0.6, 1e-6);
  EXPECT_NEAR(q[1], -0.8, 1e-6);
}

TEST(SmallMatrices, TheLargestElementOfAVectorIsPositive) {
  if (!kRuns) GTEST_SKIP() << "fibers do not run in this build";
  constexpr int kBatch = 3, kLeft = 3, kRight = 5, kLength = 40, kPairs = 2;
  const std::vector<float> u = random_numbers(kBatch * kLeft * kLength, 5), v = random_numbers(kBatch * kRight * 4, 6);
  std::vector<float> to_u(u.size()), to_v(v.size());
  // u by columns into rows, v by rows (4 x 5) into its transpose.
  const Vectors<float> left{u.data(), to_u.data(), kLeft, kLength, kLength, 1, kLeft * kLength, 1, kLeft},
      right{v.data(), to_v.data(), kRight, 4, 1, kRight, 4 * kRight, 4, 1};
  constexpr int64_t kTotal = kBatch * kRight;
  EXPECT_EQ(launch(&oriented_kernel<float, float, Here>, (kTotal + 7) / 8, 256, 0, 0, left, right, kPairs, kTotal), "");
  const auto sign = [](const float* x, int length, int apart) {
    int best = 0;
    for (int i = 1; i < length; ++i)
      if (std::abs(x[i * apart]) > std::abs(x[best * apart])) best = i;
    return x[best * apart] < 0 ? -1.0f : 1.0f;
  };
  for (int b = 0; b < kBatch; ++b)
    for (int j = 0; j < kRight; ++j) {
      const float *const x = u.data() + (b * kLeft + j) * kLength, *const y = v.data() + b * 4 * kRight + j;
      for (int i = 0; i < kLength && j < kLeft; ++i)
        ASSERT_EQ(to_u[static_cast<size_t>((b * kLength + i) * kLeft + j)], sign(x, kLength, 1) * x[i]);
      const float turn = j < kPairs ? sign(x, kLength, 1) : sign(y, 4, kRight);
      for (int i = 0; i < 4; ++i) ASSERT_EQ(to_v[static_cast<size_t>((b * kRight + j) * 4 + i)], turn * y[i * kRight]);
    }
}

}  // namespace
}  // namespace strata::linalg
