// The product from tiles on the processor (strata/cuda/tile/emulation.cuh): the kernel's own source, against sums in
// double precision; and what the emulation says of kernels that are wrong.

#define STRATA_TILE_EMULATION
#include "strata/ops/matmul/gemm_tiles.cuh"

#include <random>

#include <gtest/gtest.h>

namespace strata::cuda {

using namespace tile;

namespace {

// Kernels with a type of this file are not those of the library.
template <class Out>
struct Finish : Scaled<Out> {};
template <class Out>
struct FinishWhole : Whole<Out> {};

template <class T>
float value(T v) {
  if constexpr (std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>) {
    return emulation::number<T>(&v.bits);
  } else {
    return static_cast<float>(v);
  }
}
template <class T>
T random_number(std::mt19937& random) {
  if constexpr (std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>) {
    const bool four = std::is_same_v<T, E4M3>;  // between 1/4 and 2
    return {static_cast<uint8_t>((random() & 0x80) | ((four ? 5 << 3 : 13 << 2) + random() % (four ? 24 : 12)))};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(random());
  } else {
    return T(static_cast<float>(random() % 2001) / 1000 - 1);
  }
}

// A matrix of `batches`, its rows padded to 16 bytes with numbers that must not be read.
template <class T>
struct Stored {
  int64_t rows, columns, batches, step;
  std::vector<T> all;
  size_t start;
  Stored(int64_t rows, int64_t columns, int64_t batches, std::mt19937* random)
      : rows(rows), columns(columns), batches(batches) {
    constexpr int64_t kUnit = 16 / static_cast<int64_t>(sizeof(T));
    step = (columns + kUnit - 1) / kUnit * kUnit + kUnit;
    all.resize(static_cast<size_t>(batches * rows * step + kUnit));
    std::memset(static_cast<void*>(all.data()), 0xff, all.size() * sizeof(T));
    start = (16 - reinterpret_cast<uintptr_t>(all.data()) % 16) % 16 / sizeof(T);
    if (random == nullptr) return;
    for (int64_t z = 0; z < batches; ++z)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) at(z, i, j) = random_number<T>(*random);
  }
  T& at(int64_t z, int64_t i, int64_t j) { return all[start + static_cast<size_t>((z * rows + i) * step + j)]; }
  Matrices matrices() {
    const auto bytes = static_cast<int64_t>(sizeof(T));
    return {&at(0, 0, 0), static_cast<int>(bytes), columns, rows, batches, step * bytes, rows * step * bytes};
  }
};

template <class In, class Out, int kColumns, bool kTurnA, bool kTurnB, template <class> class Epilogue = Finish>
void check_product(int m, int n, int k, int batches, uint64_t seed) {
  SCOPED_TRACE(cat(m, " x ", n, " x ", k, ", seed ", seed));
  using A = typename emulation::Types<In>::A;
  using B = typename emulation::Types<In>::B;
  using S = GemmShape<In, Out, kColumns, kTurnA, kTurnB>;
  std::mt19937 random(static_cast<unsigned>(m * 31 + n * 7 + k));
  Stored<A> a(kTurnA ? k : m, kTurnA ? m : k, batches, &random);
  Stored<B> b(kTurnB ? k : n, kTurnB ? n : k, batches, &random);
  Stored<Out> c(m, n, batches, nullptr);
  std::vector<Out> bias;
  for (int j = 0; j < n; ++j) bias.push_back(random_number<Out>(random));
  Epilogue<Out> finish;
  constexpr bool kWhole = std::is_same_v<In, int8_t>;
  if constexpr (!kWhole) finish.alpha = 0.5f, finish.bias = bias.data();

  const GemmMaps maps{tensor_map(a.matrices(), kTurnA ? 64 : S::kRows),
                      tensor_map(b.matrices(), kTurnB ? 64 : S::kColumns), tensor_map(c.matrices(), 64)};
  const Bands bands{(m + S::kRows - 1) / S::kRows, (n + S::kColumns - 1) / S::kColumns, batches, 2};
  const unsigned blocks = bands.total() > 2 ? 2 : 1;  // each has several tiles
  ASSERT_EQ(emulation::launch(gemm_tiles_kernel<In, S, Epilogue<Out>>, blocks, S::kThreads, S::kSharedBytes, seed, maps,
                              bands, m, n, k, finish),
            "");
  for (int z = 0; z < batches; ++z)
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double want = 0;
        for (int l = 0; l < k; ++l)
          want += static_cast<double>(value(kTurnA ? a.at(z, l, i) : a.at(z, i, l))) *
                  value(kTurnB ? b.at(z, l, j) : b.at(z, j, l));
        if constexpr (kWhole) {
          ASSERT_EQ(c.at(z, i, j), static_cast<Out>(static_cast<int64_t>(want))) << i << ", " << j;
        } else {
          want = 0.5 * want + value(bias[static_cast<size_t>(j)]);
          const double bound = sizeof(Out) == 4 ? 1e-5 : 1e-2;
          ASSERT_NEAR(value(c.at(z, i, j)), want, bound * (1 + std::fabs(want))) << z << ", " << i << ", " << j;
        }
      }
      const Out* const after = &c.at(z, i, 0) + n;  // nothing is written there
      ASSERT_EQ(reinterpret_cast<const uint8_t*>(after)[0], 0xff);
    }
}

TEST(TileGemm, EveryLayout) {
  for (const uint64_t seed : {0, 1}) {
    check_product<BFloat16, BFloat16, 128, false, false>(200, 170, 136, 1, seed);
    check_product<BFloat16, float, 256, true, false>(130, 264, 72, 1, seed);
    check_product<Half, Half, 256, false, true>(72, 300, 200, 1, seed);
    check_product<Half, float, 128, true, true>(136, 129, 65, 1, seed);
  }
}
TEST(TileGemm, ManyStages) {
  check_product<BFloat16, BFloat16, 256, false, false>(65, 31, 1000, 1, 3);
  check_product<BFloat16, BFloat16, 128, false, true>(65, 31, 1000, 1, 4);
}
TEST(TileGemm, Batches) {
  check_product<BFloat16, BFloat16, 128, false, true>(33, 140, 70, 3, 5);
}
TEST(TileGemm, OneOfEach) {
  check_product<BFloat16, BFloat16, 128, false, false>(1, 1, 1, 1, 0);
}
TEST(TileGemm, EightBits) {
  check_product<E4M3, float, 256, false, false>(70, 130, 200, 1, 0);
  check_product<E5M2, BFloat16, 256, false, false>(130, 20, 129, 1, 1);
  check_product<Pair<E4M3, E5M2>, float, 256, false, false>(70, 130, 300, 1, 2);
  check_product<Pair<E5M2, E4M3>, float, 256, false, false>(70, 130, 40, 1, 3);
  check_product<int8_t, int32_t, 256, false, false, FinishWhole>(150, 260, 300, 1, 4);
  check_product<int8_t, int8_t, 256, false, false, FinishWhole>(70, 300, 130, 1, 5);
}

}  // namespace
}  // namespace strata::cuda
