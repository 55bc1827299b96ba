// Products by groups of rows from tiles on the processor (strata/cuda/tile/emulation.cuh): the kernel's own source,
// against sums in double precision, with groups that are empty, end within tiles, or have NaN for neighbours.

#define STRATA_TILE_EMULATION
#include "strata/ops/experts/grouped_tiles.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace strata::cuda {

using namespace tile;

namespace {

using emulation::Stored;
using Offsets = std::vector<int64_t>;

// Kernels with a type of this file are not those of the library.
template <class T, int kColumns, bool kTurnA, bool kTurnB>
struct Shape : GemmShape<T, T, kColumns, kTurnA, kTurnB> {};

template <class T, int kColumns, bool kTurnB>
void check_linear(const Offsets& offsets, int m, int k, uint64_t seed) {
  SCOPED_TRACE(cat(offsets.back(), " rows, ", m, " x ", k, ", seed ", seed));
  using S = Shape<T, kColumns, false, kTurnB>;
  const int n = static_cast<int>(offsets.back()), count = static_cast<int>(offsets.size()) - 1;
  Stored<T> x(1, n, k, 1), w(count, kTurnB ? k : m, kTurnB ? m : k, 2);
  // Dense, as the op's result is, between numbers that must stay.
  const T guard = T(7.0f);
  std::vector<T> room(static_cast<size_t>(n * m) + 16, guard);
  T* const y = room.data() + (16 - reinterpret_cast<uintptr_t>(room.data()) % 16) % 16 / sizeof(T);
  const Matrices results{y, sizeof(T), m, n, 1, m * static_cast<int64_t>(sizeof(T)), 0};
  const GemmMaps maps{tensor_map(x.matrices(), S::kRows), tensor_map(w.matrices(), kTurnB ? 64 : kColumns),
                      tensor_map(results, 64)};
  const Groups groups{offsets.data(), count, n, 0, m, k, y, m};
  ASSERT_EQ(emulation::launch(grouped_tiles_kernel<T, S, false>, 2, S::kThreads, S::kSharedBytes, seed, maps, groups),
            "");
  for (int e = 0; e < count; ++e)
    for (int64_t i = offsets[static_cast<size_t>(e)]; i < offsets[static_cast<size_t>(e) + 1]; ++i)
      for (int j = 0; j < m; ++j) {
        double want = 0;
        for (int l = 0; l < k; ++l) want += x(0, i, l) * (kTurnB ? w(e, l, j) : w(e, j, l));
        ASSERT_NEAR(emulation::value(y[i * m + j]), want, 1e-2 * (1 + std::fabs(want))) << e << ", " << i << ", " << j;
      }
  for (const T* p = room.data(); p < room.data() + room.size(); ++p) {
    if (p < y || p >= y + n * m) {
      ASSERT_EQ(emulation::value(*p), 7) << "beside the result";
    }
  }
}

template <class T, int kColumns>
void check_outer(const Offsets& offsets, int m, int k, uint64_t seed, int64_t wrong_row = -1) {
  SCOPED_TRACE(cat(offsets.back(), " rows, ", m, " x ", k, ", seed ", seed));
  using S = Shape<T, kColumns, true, true>;
  const int n = static_cast<int>(offsets.back()), count = static_cast<int>(offsets.size()) - 1;
  Stored<T> g(1, n, m, 1), x(1, n, k, 2), y(count, m, k);
  if (wrong_row >= 0) {
    for (int j = 0; j < m; ++j) g.at(0, wrong_row, j) = T(std::numeric_limits<float>::quiet_NaN());
    for (int j = 0; j < k; ++j) x.at(0, wrong_row, j) = T(std::numeric_limits<float>::infinity());
  }
  const GemmMaps maps{tensor_map(g.matrices(), 64), tensor_map(x.matrices(), 64), tensor_map(y.matrices(), 64)};
  const Groups groups{offsets.data(), count, n, m, k, 0, nullptr, 0};
  ASSERT_EQ(emulation::launch(grouped_tiles_kernel<T, S, true>, 2, S::kThreads, S::kSharedBytes, seed, maps, groups),
            "");
  for (int e = 0; e < count; ++e) {
    const int64_t first = offsets[static_cast<size_t>(e)], last = offsets[static_cast<size_t>(e) + 1];
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < k; ++j) {
        double want = 0;
        for (int64_t l = first; l < last; ++l) want += g(0, l, i) * x(0, l, j);
        if (wrong_row >= first && wrong_row < last)
          ASSERT_TRUE(std::isnan(y(e, i, j)));
        else
          ASSERT_NEAR(y(e, i, j), want, 1e-2 * (1 + std::fabs(want))) << e << ", " << i << ", " << j;
      }
  }
  EXPECT_TRUE(y.padding_is_whole());
}

class GroupedTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

TEST_F(GroupedTiles, RowsOfEveryGroup) {
  for (const uint64_t seed : {0, 1}) {
    check_linear<BFloat16, 128, false>({0, 5, 5, 140, 300, 364}, 136, 72, seed);
    check_linear<Half, 256, true>({0, 0, 128, 129, 129}, 264, 130, seed);
  }
  check_linear<BFloat16, 128, true>({0, 70}, 8, 3, 2);
  check_linear<BFloat16, 256, false>({0, 1, 2, 3}, 24, 1000, 3);  // more steps than stages
}
TEST_F(GroupedTiles, SumsOverRows) {
  for (const uint64_t seed : {0, 1}) {
    check_outer<BFloat16, 128>({0, 5, 5, 140, 268}, 136, 72, seed);
    check_outer<Half, 256>({0, 0, 64, 65, 65}, 40, 300, seed);
  }
  check_outer<BFloat16, 128>({0, 700}, 64, 64, 2);
}
TEST_F(GroupedTiles, NumbersOfTheNextGroupStayThere) {
  check_outer<BFloat16, 128>({0, 70, 100, 130}, 72, 72, 0, 70);
  check_outer<BFloat16, 128>({0, 70, 71, 130}, 72, 136, 1, 71);
}
// What no record says, but memory must survive.
TEST_F(GroupedTiles, OffsetsThatAreNoneWriteNowhereElse) {
  using S = Shape<BFloat16, 128, false, false>;
  Stored<BFloat16> x(1, 40, 64, 1), w(3, 64, 64, 2);
  std::vector<BFloat16> room(40 * 64 + 16, BFloat16(7.0f));
  BFloat16* const y = room.data() + (16 - reinterpret_cast<uintptr_t>(room.data()) % 16) % 16 / 2;
  const GemmMaps maps{tensor_map(x.matrices(), S::kRows), tensor_map(w.matrices(), 128),
                      tensor_map(Matrices{y, 2, 64, 40, 1, 128, 0}, 64)};
  for (const Offsets& offsets : {Offsets{-5, 9, 3, 70}, Offsets{50, 60, 90, 1000}}) {
    const Groups groups{offsets.data(), 3, 40, 0, 64, 64, y, 64};
    ASSERT_EQ(
        emulation::launch(grouped_tiles_kernel<BFloat16, S, false>, 2, S::kThreads, S::kSharedBytes, 0, maps, groups),
        "");
    for (const BFloat16* p = room.data(); p < room.data() + room.size(); ++p) {
      if (p < y || p >= y + 40 * 64) {
        ASSERT_EQ(emulation::value(*p), 7);
      }
    }
  }
}

}  // namespace
}  // namespace strata::cuda
