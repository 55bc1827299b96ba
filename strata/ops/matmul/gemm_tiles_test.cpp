// The product from tiles on the processor (strata/cuda/tile/emulation.cuh): the kernel's own source, against sums in
// double precision; and what the emulation says of kernels that are wrong.

#define STRATA_TILE_EMULATION
#include "strata/ops/matmul/gemm_tiles.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"
#include "strata/ops/matmul/gated_tiles.cuh"
#include "strata/ops/matmul/gemm_split.cuh"

#include <gtest/gtest.h>

namespace strata::cuda {

using namespace tile;

namespace {

// Kernels with a type of this file are not those of the library.
template <class Out>
struct Finish : Scaled<Out> {};
template <class Out>
struct FinishWhole : Whole<Out> {};

using emulation::Stored;

template <bool kTurnA, bool kTurnB, class A, class B, class Out>
void expect_product(Stored<A>& a, Stored<B>& b, Stored<Out>& bias, Stored<Out>& c, int m, int n, int k, int batches) {
  for (int z = 0; z < batches; ++z)
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double want = 0;
        for (int l = 0; l < k; ++l) want += (kTurnA ? a(z, l, i) : a(z, i, l)) * (kTurnB ? b(z, l, j) : b(z, j, l));
        if constexpr (std::is_same_v<A, int8_t>) {
          ASSERT_EQ(c.at(z, i, j), static_cast<Out>(static_cast<int64_t>(want))) << i << ", " << j;
        } else {
          want = 0.5 * want + bias(0, 0, j);
          const double bound = sizeof(Out) == 4 ? 1e-5 : 1e-2;
          ASSERT_NEAR(c(z, i, j), want, bound * (1 + std::fabs(want))) << z << ", " << i << ", " << j;
        }
      }
  EXPECT_TRUE(c.padding_is_whole());
}

template <class In, class Out, int kColumns, bool kTurnA, bool kTurnB, template <class> class Epilogue = Finish>
void check_product(int m, int n, int k, int batches, uint64_t seed) {
  SCOPED_TRACE(cat(m, " x ", n, " x ", k, ", seed ", seed));
  using A = typename emulation::Types<In>::A;
  using B = typename emulation::Types<In>::B;
  using S = GemmShape<In, Out, kColumns, kTurnA, kTurnB>;
  Stored<A> a(batches, kTurnA ? k : m, kTurnA ? m : k, m);
  Stored<B> b(batches, kTurnB ? k : n, kTurnB ? n : k, n);
  Stored<Out> c(batches, m, n), bias(1, 1, n, k);
  Epilogue<Out> finish;
  if constexpr (!std::is_same_v<In, int8_t>) finish.alpha = 0.5f, finish.bias = &bias.at(0, 0, 0);

  const GemmMaps maps{tensor_map(a.matrices(), kTurnA ? 64 : S::kRows),
                      tensor_map(b.matrices(), kTurnB ? 64 : S::kColumns), tensor_map(c.matrices(), 64)};
  const Bands bands{(m + S::kRows - 1) / S::kRows, (n + S::kColumns - 1) / S::kColumns, batches, 2};
  const unsigned blocks = bands.total() > 2 ? 2 : 1;  // each has several tiles
  ASSERT_EQ(emulation::launch(gemm_tiles_kernel<In, S, Epilogue<Out>>, blocks, S::kThreads, S::kSharedBytes, seed, maps,
                              bands, m, n, k, finish),
            "");
  expect_product<kTurnA, kTurnB>(a, b, bias, c, m, n, k, batches);
}

template <class In, class Out, int kShare, int kSplit, bool kTurnA, bool kTurnB>
void check_split(int m, int n, int k, int batches, uint64_t seed) {
  SCOPED_TRACE(cat(m, " x ", n, " x ", k, ", clusters of ", kShare, " x ", kSplit, ", seed ", seed));
  using S = SplitShape<In, Out, kShare, kSplit, kTurnA, kTurnB>;
  Stored<In> a(batches, kTurnA ? k : m, kTurnA ? m : k, m), b(batches, kTurnB ? k : n, kTurnB ? n : k, n);
  Stored<Out> c(batches, m, n), bias(1, 1, n, k);
  Finish<Out> finish;
  finish.alpha = 0.5f, finish.bias = &bias.at(0, 0, 0);
  const GemmMaps maps{tensor_map(a.matrices(), kTurnA ? 64 : S::kRows),
                      tensor_map(b.matrices(), kTurnB ? 64 : S::kBColumns), tensor_map(c.matrices(), 64)};
  const int high = S::kRows * kShare;
  const Bands bands{(m + high - 1) / high, (n + S::kColumns - 1) / S::kColumns, batches, 2};
  constexpr unsigned kBlocks = kShare * kSplit;
  ASSERT_EQ(emulation::launch_clusters(gemm_split_kernel<In, S, Finish<Out>>, kBlocks,
                                       kBlocks * static_cast<unsigned>(bands.total()), S::kThreads, S::kSharedBytes,
                                       seed, maps, bands, m, n, k, finish),
            "");
  expect_product<kTurnA, kTurnB>(a, b, bias, c, m, n, k, batches);
}

class TileGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

TEST_F(TileGemm, EveryLayout) {
  for (const uint64_t seed : {0, 1}) {
    check_product<BFloat16, BFloat16, 128, false, false>(200, 170, 136, 1, seed);
    check_product<BFloat16, float, 256, true, false>(130, 264, 72, 1, seed);
    check_product<Half, Half, 256, false, true>(72, 300, 200, 1, seed);
    check_product<Half, float, 128, true, true>(136, 129, 65, 1, seed);
  }
}
TEST_F(TileGemm, ManyStages) {
  check_product<BFloat16, BFloat16, 256, false, false>(65, 31, 1000, 1, 3);
  check_product<BFloat16, BFloat16, 128, false, true>(65, 31, 1000, 1, 4);
}
TEST_F(TileGemm, Batches) {
  check_product<BFloat16, BFloat16, 128, false, true>(33, 140, 70, 3, 5);
}
TEST_F(TileGemm, OneOfEach) {
  check_product<BFloat16, BFloat16, 128, false, false>(1, 1, 1, 1, 0);
}
TEST_F(TileGemm, EightBits) {
  check_product<E4M3, float, 256, false, false>(70, 130, 200, 1, 0);
  check_product<E5M2, BFloat16, 256, false, false>(130, 20, 129, 1, 1);
  check_product<Pair<E4M3, E5M2>, float, 256, false, false>(70, 130, 300, 1, 2);
  check_product<Pair<E5M2, E4M3>, float, 256, false, false>(70, 130, 40, 1, 3);
  check_product<int8_t, int32_t, 256, false, false, FinishWhole>(150, 260, 300, 1, 4);
  check_product<int8_t, int8_t, 256, false, false, FinishWhole>(70, 300, 130, 1, 5);
}

// Clusters whose last tiles lie below the result, parts of unequal length, more steps than stages.
TEST_F(TileGemm, SplitSums) {
  for (const uint64_t seed : {0, 1, 2}) {
    check_split<BFloat16, BFloat16, 2, 2, false, false>(150, 140, 200, 1, seed);
    check_split<BFloat16, float, 2, 2, true, true>(264, 70, 129, 1, seed);
    check_split<Half, Half, 1, 4, false, true>(72, 130, 300, 1, seed);
    check_split<Half, float, 1, 4, true, false>(130, 129, 450, 1, seed);
    check_split<BFloat16, BFloat16, 1, 2, false, false>(100, 60, 70, 2, seed);
  }
  for (const uint64_t seed : {3, 4, 5}) check_split<BFloat16, float, 2, 2, false, true>(140, 120, 1000, 1, seed);
}

// ---- the gated layer ----

struct Shape : GatedShape {};

template <class T>
void check_gated(int m, int h, int k, uint64_t seed) {
  SCOPED_TRACE(cat(m, " x ", h, " x ", k, ", seed ", seed));
  Stored<T> x(1, m, k, 1), weight(1, 2 * h, k, 2), y(1, m, h);
  const GatedMaps maps{tensor_map(x.matrices(), Shape::kRows), tensor_map(weight.matrices(), Shape::kColumns),
                       tensor_map(y.matrices(), 64)};
  const Bands bands{(m + Shape::kRows - 1) / Shape::kRows, (h + Shape::kColumns - 1) / Shape::kColumns, 1, 16};
  ASSERT_EQ(emulation::launch(gated_tiles_kernel<T, Shape>, 2, Shape::kThreads, Shape::kSharedBytes, seed, maps, bands,
                              m, h, k),
            "");
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < h; ++j) {
      double gate = 0, up = 0;
      for (int l = 0; l < k; ++l) gate += x(0, i, l) * weight(0, j, l), up += x(0, i, l) * weight(0, h + j, l);
      const double want = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(y(0, i, j), want, 1e-2 * (1 + std::fabs(want))) << i << ", " << j;
    }
  EXPECT_TRUE(y.padding_is_whole());
}

class GatedTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

TEST_F(GatedTiles, EdgesAndSeveralTiles) {
  for (const uint64_t seed : {0, 1, 2}) {
    check_gated<BFloat16>(150, 200, 100, seed);
    check_gated<Half>(300, 72, 64, seed);
    check_gated<BFloat16>(3, 7, 5, seed);
  }
}

}  // namespace
}  // namespace strata::cuda
