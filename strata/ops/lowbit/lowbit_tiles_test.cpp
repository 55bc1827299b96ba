// Products of few rows with low-bit matrices on the processor, from the card's source, against sums in double
// precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/lowbit/lowbit_tiles.cuh"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/rng.h"
#include "strata/cuda/tile/emulation_stored.cuh"
#include "strata/ops/lowbit/lowbit_samples_inl.h"

namespace strata::cuda {
namespace {

using tile::emulation::Stored;

template <WeightCodes kKind, class T, int kTiles, int kKept>
void expect_product(int64_t rows, int64_t columns, int m, unsigned ranks, uint64_t seed,
                    const lowbit::RandomParts& parts = {}) {
  using S = lowbit_tiles::Shape<kKind, kTiles, kKept>;
  Samples s(DType::f32);
  const char* const name = kKind == WeightCodes::int4 ? "int4" : kKind == WeightCodes::int8 ? "int8" : "e4m3";
  SCOPED_TRACE(cat(name, " ", rows, " x ", columns, ", ", m, " rows, ", ranks, " blocks of a cluster, seed ", seed));
  const PackedWeight w = lowbit::random_packed(s, name, rows, columns, parts);
  Stored<T> x(1, 1, m * columns, 1), bias(1, 1, rows, 2), y(1, 1, m * rows);
  const int64_t block = w.block_columns == 0 ? columns : w.block_columns;
  LowbitProduct p{};
  p.w = {.kind = kKind,
         .scale_dtype = w.scales.dtype(),
         .rows = rows,
         .columns = columns,
         .row_bytes = w.format->row_bytes(columns),
         .block_rows = w.block_rows == 0 ? rows : w.block_rows,
         .block_columns = block,
         .grid_columns = w.grid()[1],
         .codes = static_cast<const uint8_t*>(w.codes.raw_data()),
         .scales = w.scales.raw_data(),
         .zeros = w.zeros.defined() ? static_cast<const uint8_t*>(w.zeros.raw_data()) : nullptr,
         .order = nullptr,
         .nested = nullptr};
  p.x = &x.at(0, 0, 0), p.y = &y.at(0, 0, 0), p.bias = m % 2 == 1 ? &bias.at(0, 0, 0) : nullptr;
  p.m = m;
  p.steps = static_cast<int>(columns / lowbit_tiles::kStepColumns<kKind>);
  p.block_steps = static_cast<int>(block / lowbit_tiles::kStepColumns<kKind>);
  p.block_shift = std::has_single_bit(static_cast<unsigned>(p.block_steps))
                      ? std::countr_zero(static_cast<unsigned>(p.block_steps))
                      : -1;
  const auto blocks = static_cast<unsigned>((rows + S::kBlockRows - 1) / S::kBlockRows) * ranks;
  const auto kernel = lowbit_tiles_kernel<kKind, T, kTiles, kKept>;
  ASSERT_EQ(ranks > 1 ? tile::emulation::launch_clusters(kernel, ranks, blocks, lowbit_tiles::kThreads, S::kSharedBytes,
                                                         seed, p)
                      : tile::emulation::launch(kernel, blocks, lowbit_tiles::kThreads, S::kSharedBytes, seed, p),
            "");
  EXPECT_TRUE(y.padding_is_whole());
  const std::vector<double> numbers = w.decode().to_vector<double>();
  const double rounding = std::is_same_v<T, BFloat16> ? 4e-3 : 5e-4;
  for (int i = 0; i < m; ++i)
    for (int64_t n = 0; n < rows; ++n) {
      double want = p.bias != nullptr ? bias(0, 0, n) : 0, all = std::abs(want);
      for (int64_t k = 0; k < columns; ++k) {
        const double v = x(0, 0, i * columns + k) * numbers[static_cast<size_t>(n * columns + k)];
        want += v, all += std::abs(v);
      }
      ASSERT_NEAR(y(0, 0, i * rows + n), want, 1e-6 * all + rounding * std::abs(want)) << i << ", " << n;
    }
}

constexpr auto kInt4 = WeightCodes::int4, kInt8 = WeightCodes::int8, kE4m3Codes = WeightCodes::e4m3;

TEST(LowbitTiles, AreTheSums) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  manual_seed(6);
  for (const uint64_t seed : {0, 1, 2}) {
    // One step; several chunks with an odd last step; blocks of several groups, of none, of zeros.
    expect_product<kInt4, BFloat16, 1, 1>(64, 128, 1, 1, seed, {.block_columns = 128, .scale_dtype = DType::f16});
    expect_product<kInt4, BFloat16, 1, 1>(70, 128 * 19, 1, 1, seed,
                                          {.block_columns = 128, .zeros = true, .scale_dtype = DType::bf16});
    expect_product<kInt4, Half, 1, 8>(20, 128 * 11, 5, 1, seed, {.block_columns = 256, .zeros = true});
    expect_product<kInt4, BFloat16, 2, 8>(130, 128 * 9, 13, 1, seed, {.block_columns = 128});
    expect_product<kInt4, Half, 4, 8>(64, 128 * 6, 32, 1, seed, {.block_rows = 0});
    expect_product<kInt4, BFloat16, 1, 8>(32, 128 * 12, 2, 1, seed, {.block_columns = 384});
    expect_product<kInt8, BFloat16, 1, 1>(33, 64 * 17, 1, 1, seed, {.block_columns = 64, .zeros = true});
    expect_product<kInt8, Half, 4, 8>(40, 64 * 5, 27, 1, seed, {});
    expect_product<kE4m3Codes, BFloat16, 1, 8>(90, 64 * 18, 8, 1, seed, {.block_rows = 32, .block_columns = 128});
  }
}

TEST(LowbitTiles, BlocksOfAClusterShareTheColumns) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  manual_seed(7);
  for (const uint64_t seed : {0, 1}) {
    expect_product<kInt4, BFloat16, 1, 1>(100, 128 * 28, 1, 2, seed, {.block_columns = 128});
    expect_product<kInt4, BFloat16, 1, 8>(64, 128 * 21, 3, 4, seed, {.block_columns = 128, .zeros = true});
    expect_product<kE4m3Codes, Half, 2, 8>(64, 64 * 10, 16, 4, seed, {.block_rows = 128, .block_columns = 128});
    expect_product<kInt8, BFloat16, 1, 1>(64, 64 * 9, 1, 8, seed, {});  // the last blocks have nothing to add
  }
}

}  // namespace
}  // namespace strata::cuda
