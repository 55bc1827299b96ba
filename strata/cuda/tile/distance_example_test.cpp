// The example of docs/design/cuda-tiles.md on the processor, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/cuda/tile/distance_example.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"

#include <gtest/gtest.h>

namespace strata::cuda::tile {
namespace {

using emulation::Stored;
struct Shape : DistanceShape {};  // so that the kernel is this program's own

int tiles(int64_t size, int tile) {
  return static_cast<int>((size + tile - 1) / tile);
}
template <class T>
void set_squares(Stored<float>& squares, Stored<T>& of, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) sum += of(0, i, j) * of(0, i, j);
    squares.at(0, 0, i) = static_cast<float>(sum);
  }
}

template <class T>
void expect_distances(int64_t m, int64_t n, int64_t k, unsigned blocks, uint64_t seed) {
  SCOPED_TRACE(cat(m, " x ", n, " x ", k, ", ", blocks, " blocks, seed ", seed));
  Stored<T> a(1, m, k, 1), b(1, n, k, 2);
  Stored<float> a_squares(1, 1, m), b_squares(1, 1, n), d(1, m, n);
  set_squares(a_squares, a, m, k), set_squares(b_squares, b, n, k);
  for (const Matrices& each : {a.matrices(), b.matrices(), d.matrices()}) ASSERT_TRUE(fits_copies(each));
  const Bands bands{tiles(m, Shape::kRows), tiles(n, Shape::kColumns), 1, 2};
  ASSERT_EQ(emulation::launch(distances<T, Shape>, blocks, Shape::kThreads, Shape::kSharedBytes, seed,
                              tensor_map(a.matrices(), Shape::kRows), tensor_map(b.matrices(), Shape::kColumns),
                              tensor_map(d.matrices(), 64), &a_squares.at(0, 0, 0), &b_squares.at(0, 0, 0),
                              static_cast<int>(m), static_cast<int>(n), bands, tiles(k, Shape::kDepth)),
            "");
  EXPECT_TRUE(d.padding_is_whole());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = 0;
      for (int64_t l = 0; l < k; ++l) want += (a(0, i, l) - b(0, j, l)) * (a(0, i, l) - b(0, j, l));
      ASSERT_NEAR(d(0, i, j), want, 1e-6 * static_cast<double>(k + 1)) << i << ", " << j;
    }
}

TEST(CudaTileExample, DistancesOfRows) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1, 2}) {
    expect_distances<BFloat16>(128, 128, 64, 1, seed);
    expect_distances<BFloat16>(1, 1, 1, 1, seed);
    expect_distances<BFloat16>(65, 131, 72, 2, seed);    // groups with nothing to do
    expect_distances<BFloat16>(201, 300, 333, 1, seed);  // more tiles a block, and more steps, than stages
    expect_distances<Half>(330, 35, 521, 2, seed);
  }
}

}  // namespace
}  // namespace strata::cuda::tile
