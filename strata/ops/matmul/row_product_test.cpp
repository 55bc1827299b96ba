// The product of one row on the processor, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/matmul/row_product.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"

#include <gtest/gtest.h>

namespace strata::cuda {
namespace {

using tile::emulation::Stored;
struct Shape : RowShape<1024, 3> {};  // so that the kernel is this program's own

struct Options {
  float alpha = 1, beta = 0;
  bool bias = false, bias_is_out = false;
};

template <class T, class O>
void expect_product(int n, int k, unsigned blocks, uint64_t seed, const Options& options = {}) {
  SCOPED_TRACE(cat(n, " x ", k, ", ", blocks, " blocks, seed ", seed));
  Stored<T> x(1, 1, k, 1), w(1, n, k, 2), bias(1, 1, n, 3);
  Stored<O> out_bias(1, 1, n, 4), before(1, 1, n, 5);
  Stored<O> y(1, 1, n, 5);
  RowProduct g{&x.at(0, 0, 0),
               &w.at(0, 0, 0),
               nullptr,
               &y.at(0, 0, 0),
               n > 1 ? &w.at(0, 1, 0) - &w.at(0, 0, 0) : 0,
               n,
               k,
               options.alpha,
               options.beta,
               options.bias_is_out};
  if (options.bias) g.bias = options.bias_is_out ? static_cast<const void*>(&out_bias.at(0, 0, 0)) : &bias.at(0, 0, 0);
  ASSERT_EQ(tile::emulation::launch(row_product_kernel<T, O, Shape>, blocks, Shape::kThreads, Shape::shared_bytes(k),
                                    seed, g),
            "");
  EXPECT_TRUE(y.padding_is_whole());
  for (int i = 0; i < n; ++i) {
    double want = 0;
    for (int l = 0; l < k; ++l) want += x(0, 0, l) * w(0, i, l);
    want *= options.alpha;
    if (options.beta != 0) want += options.beta * before(0, 0, i);
    if (options.bias) want += options.bias_is_out ? out_bias(0, 0, i) : bias(0, 0, i);
    const double rounding = std::is_same_v<O, float> ? 0 : std::is_same_v<O, BFloat16> ? 4e-3 : 5e-4;
    ASSERT_NEAR(y(0, 0, i), want, 1e-6 * (k + 1) + rounding * std::abs(want)) << i;
  }
}

TEST(RowProduct, IsTheSum) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1, 2}) {
    expect_product<BFloat16, float>(1, 8, 1, seed);
    expect_product<BFloat16, BFloat16>(7, 512, 1, seed);  // warps with nothing to do; a part that is whole
    expect_product<Half, Half>(70, 1200, 2, seed);  // several rows a warp, more parts than places, a short last part
    expect_product<BFloat16, float>(33, 2048 + 8, 3, seed);  // a last part of one piece
    expect_product<Half, float>(257, 264, 4, seed);
  }
}

TEST(RowProduct, AddsWhatStandsThereAndABias) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  expect_product<BFloat16, BFloat16>(40, 520, 2, 1, {.alpha = 0.5f, .beta = 1});
  expect_product<BFloat16, float>(40, 520, 2, 1, {.alpha = 2, .beta = -1, .bias = true});
  expect_product<Half, float>(40, 520, 2, 1, {.bias = true, .bias_is_out = true});
}

}  // namespace
}  // namespace strata::cuda
