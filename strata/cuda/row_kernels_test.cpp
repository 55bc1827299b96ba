// Kernels of rows by index (row_kernels.cuh) on the processor: the kernels' own source, against sums in the documented
// order, bit for bit.

#define STRATA_TILE_EMULATION
#include "strata/cuda/row_kernels.cuh"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace strata::cuda {
namespace {

namespace emulation = tile::emulation;

struct Case {
  int64_t n, rows, width;
  int64_t pre = 1, skip = -1, stretch = kPart;
  bool from_zero = false;
  bool sorted = false;  // sources lie as the keys do
};

// An index of n positions in rows: some rows have many, some none, and a few positions name no row (`rows`).
std::vector<uint32_t> keys_of(const Case& c, std::mt19937& random) {
  std::vector<uint32_t> key(static_cast<size_t>(c.n));
  for (uint32_t& k : key) {
    const auto any = static_cast<uint32_t>(random() % static_cast<unsigned>(c.rows));
    k = random() % 3 == 0 ? any / 8 : any;
    if (random() % 40 == 0) k = static_cast<uint32_t>(c.rows);
  }
  std::sort(key.begin(), key.end());
  return key;
}

// What the kernel should leave in y and in the parts.
template <class T>
void sums_in_order(const Case& c, const std::vector<uint32_t>& key, const std::vector<uint32_t>& order,
                   const std::vector<T>& source, float alpha, const std::vector<float>& scale, std::vector<T>& y,
                   std::map<int64_t, float>& partial) {
  for (int64_t p = 0; p < c.pre; ++p)
    for (int64_t s = 0; s < c.n;) {
      const int64_t part = s / kPart, row = key[static_cast<size_t>(s)];
      int64_t end = s;
      while (end < std::min(c.n, (part + 1) * kPart) && key[static_cast<size_t>(end)] == row) ++end;
      const bool before = s > 0 && key[static_cast<size_t>(s - 1)] == row,
                 behind = end < c.n && key[static_cast<size_t>(end)] == row;
      for (int64_t j = 0; row < c.rows && row != c.skip && j < c.width; ++j) {
        T& to = y[static_cast<size_t>((p * c.rows + row) * c.width + j)];
        float sum = before || behind ? 0.0F : static_cast<float>(to);
        for (int64_t e = s; e < end; ++e) {
          const int64_t from = (p * c.n + order[static_cast<size_t>(e)]) * c.width + j;
          sum += (scale.empty() ? alpha : scale[static_cast<size_t>(e)]) *
                 static_cast<float>(source[static_cast<size_t>(from)]);
        }
        if (before || behind)
          partial[((p * parts_of(c.n) + part) * 2 + (s % kPart != 0)) * c.width + j] = sum;
        else
          to = static_cast<T>(sum);
      }
      s = end;
    }
}

template <class T, int V, bool Scaled>
void expect_sums(const Case& c, unsigned seed) {
  SCOPED_TRACE(cat(c.n, " positions, ", c.rows, " rows of ", c.width, " by ", V, ", pre ", c.pre, ", skip ", c.skip,
                   ", stretch ", c.stretch, ", zeros ", c.from_zero, ", sorted ", c.sorted, ", scaled ", Scaled,
                   ", seed ", seed));
  std::mt19937 random(seed);
  const auto number = [&] {
    return std::ldexp(static_cast<float>(random() % 2001) - 1000, static_cast<int>(random() % 9) - 12);
  };
  std::vector<uint32_t> key = seed == 0 ? std::vector<uint32_t>(static_cast<size_t>(c.n), 1) : keys_of(c, random);
  std::vector<uint32_t> order(key.size());
  std::iota(order.begin(), order.end(), 0U);
  if (!c.sorted) std::shuffle(order.begin(), order.end(), random);
  std::vector<T> source(static_cast<size_t>(c.pre * c.n * c.width) + 8),
      y(static_cast<size_t>(c.pre * c.rows * c.width) + 8, T(-7));
  for (T& v : source) v = T(number());
  for (size_t i = 0; i + 8 < y.size(); ++i) y[i] = c.from_zero ? T(0) : T(number());
  std::vector<float> scale(Scaled ? key.size() : 0);
  for (float& v : scale) v = number();
  std::vector<T> want = y;
  std::map<int64_t, float> want_partial;
  sums_in_order(c, key, order, source, 0.75F, scale, want, want_partial);

  std::vector<float> partial(static_cast<size_t>(c.pre * parts_of(c.n) * 2 * c.width) + 8, -3);
  const RowBlock block = row_block(c.width / V);
  const RowSums s{c.n, c.pre, c.rows, c.width, c.skip, c.stretch, block.across, block.chunks, c.from_zero};
  const int64_t stretches = (c.n + c.stretch - 1) / c.stretch;
  const auto blocks = static_cast<unsigned>((stretches + block.down - 1) / block.down) * block.chunks;
  ASSERT_EQ(emulation::launch(sum_rows_kernel<T, V, Scaled, uint32_t>, blocks, block.across * block.down, 0, seed, s,
                              y.data(), static_cast<const uint32_t*>(key.data()),
                              c.sorted ? nullptr : static_cast<const uint32_t*>(order.data()),
                              static_cast<const T*>(source.data()), 0.75F, static_cast<const float*>(scale.data()),
                              partial.data()),
            "");
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(static_cast<float>(y[i]), static_cast<float>(want[i])) << "y " << i;
  for (size_t i = 0; i < partial.size(); ++i) {
    const auto at = want_partial.find(static_cast<int64_t>(i));
    ASSERT_EQ(partial[i], at == want_partial.end() ? -3.0F : at->second) << "part " << i;
  }
}

TEST(RowKernels, SumsAreInOrder) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const unsigned seed : {0U, 1U, 2U})
    for (const int64_t n : {1, 7, 63, 64, 65, 200, 513})
      for (const int64_t stretch : {8, 16, 64})
        for (const int64_t rows : {3, 40, 700}) {
          expect_sums<float, 4, false>({n, rows, 12, 1, -1, stretch, false}, seed);
          expect_sums<float, 1, false>({n, rows, 5, 1, 1, stretch, true}, seed);
          expect_sums<BFloat16, 8, true>({n, rows, 8, 1, -1, stretch, true}, seed);
          expect_sums<float, 1, false>({n, rows, 1, 1, -1, stretch, false, true}, seed);
        }
  // Several blocks along a row, several matrices, rows that do not fill their block.
  expect_sums<float, 4, false>({150, 9, 4 * 300, 1, -1, 64, false}, 3);
  expect_sums<float, 1, true>({70, 9, 133, 1, 2, 16, false}, 4);
  expect_sums<float, 1, false>({90, 5, 3, 3, 0, 8, false}, 5);
}

TEST(RowKernels, BlocksCoverARow) {
  for (int64_t pieces = 1; pieces < 2000; ++pieces) {
    const RowBlock b = row_block(pieces);
    ASSERT_GE(int64_t{b.across} * b.chunks, pieces);
    ASSERT_LT(int64_t{b.across} * (b.chunks - 1), pieces);
    ASSERT_LE(b.across * b.down, static_cast<unsigned>(kRowThreads));
    ASSERT_GE(b.down, 1U);
    for (const int64_t n : {1, 1000, 100000, 10000000}) {
      const int64_t stretch = stretch_of(n, b);
      ASSERT_EQ(kPart % stretch, 0);
    }
  }
}

// What is out of range, as a kernel tells it.
struct Told {
  std::vector<int64_t>* index;
  void tell(int64_t given, int64_t) const { index->push_back(given); }
};

template <int P, int R>
void expect_taken(int64_t pieces, int64_t n, int64_t pre, bool from_end) {
  SCOPED_TRACE(cat(pieces, " pieces by ", P, ", ", n, " rows by ", R, ", pre ", pre, ", from the end ", from_end));
  constexpr int64_t kNone = INT64_MIN;
  const int64_t rows = 11, total = pre * n;
  std::mt19937 random(static_cast<unsigned>(pieces + n));
  std::vector<uint32_t> x(static_cast<size_t>(pre * rows * pieces)), y(static_cast<size_t>(total * pieces) + 8, 5),
      want;
  std::iota(x.begin(), x.end(), 100U);
  std::vector<int64_t> index(static_cast<size_t>(n)), told, wrong;
  for (int64_t& i : index) i = static_cast<int64_t>(random() % 11) - (from_end && random() % 2 == 0 ? 11 : 0);
  if (n > 4) index[3] = kNone, index[4] = 11;
  for (int64_t r = 0; r < total; ++r)
    for (int64_t j = 0; j < pieces; ++j) {
      int64_t i = index[static_cast<size_t>(r % n)];
      if (i < 0 && i != kNone) i += rows;
      const bool in = i >= 0 && i < rows;
      want.push_back(in ? x[static_cast<size_t>((r / n * rows + i) * pieces + j)] : 0);
    }
  const RowBlock b = row_block(std::min<int64_t>(pieces, 32));
  const auto blocks = static_cast<unsigned>((total + b.down * R - 1) / (b.down * R));
  ASSERT_EQ(
      emulation::launch(take_several_kernel<uint32_t, P, R, Told>, blocks, b.across * b.down, 0, 1,
                        static_cast<const uint32_t*>(x.data()), static_cast<const int64_t*>(index.data()), y.data(), n,
                        total, rows, static_cast<int>(pieces), b.across, from_end, kNone, Told{&told}),
      "");
  want.resize(y.size(), 5);
  EXPECT_EQ(y, want);
  EXPECT_EQ(told.empty(), n <= 4);
  for (const int64_t given : told) EXPECT_EQ(given, 11);
}

TEST(RowKernels, RowsAreTaken) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const bool from_end : {false, true})
    for (const int64_t pre : {1, 3})
      for (const int64_t n : {1, 4, 33, 70}) {
        for (const int64_t pieces : {1, 3, 10, 31, 32}) expect_taken<1, 8>(pieces, n, pre, from_end);
        for (const int64_t pieces : {33, 50, 64}) expect_taken<2, 4>(pieces, n, pre, from_end);
        for (const int64_t pieces : {65, 97, 128}) expect_taken<4, 2>(pieces, n, pre, from_end);
      }
}

}  // namespace
}  // namespace strata::cuda
