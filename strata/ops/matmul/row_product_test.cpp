// The product of one row on the processor, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/matmul/row_product.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"

#include <cmath>
#include <vector>

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
  RowProduct g{};
  g.x = &x.at(0, 0, 0), g.w = &w.at(0, 0, 0), g.y = &y.at(0, 0, 0);
  g.row = n > 1 ? &w.at(0, 1, 0) - &w.at(0, 0, 0) : 0, g.n = n, g.k = k;
  g.alpha = options.alpha, g.beta = options.beta, g.bias_is_out = options.bias_is_out;
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

// y, and the sum that the norm is of, by numbers that are rounded where the separate kernels round.
template <class T, RowWork kWork>
void expect_layer(int n, int k, unsigned blocks, uint64_t seed) {
  SCOPED_TRACE(cat(n, " x ", k, ", ", blocks, " blocks, seed ", seed));
  constexpr bool kNorm = kWork != RowWork::gate, kGate = kWork != RowWork::norm;
  const auto rounded = [](double v) { return static_cast<double>(static_cast<float>(T(static_cast<float>(v)))); };
  Stored<T> x(1, 1, k, 1), w(1, kGate ? 2 * n : n, k, 2), residual(1, 1, k, 3), norm(1, 1, k, 4), bias(1, 1, n, 5);
  Stored<T> y(1, 1, n, 6), sum(1, 1, k, 7);
  RowProduct g{};
  g.x = &x.at(0, 0, 0), g.w = &w.at(0, 0, 0), g.y = &y.at(0, 0, 0);
  g.row = &w.at(0, 1, 0) - &w.at(0, 0, 0), g.n = n, g.k = k, g.alpha = 1;
  if (!kGate) g.bias = &bias.at(0, 0, 0);
  if (kNorm) g.residual = &residual.at(0, 0, 0), g.norm = &norm.at(0, 0, 0), g.sum = &sum.at(0, 0, 0), g.eps = 1e-3f;
  ASSERT_EQ(tile::emulation::launch(row_product_kernel<T, T, Shape, kWork>, blocks, Shape::kThreads,
                                    Shape::shared_bytes(k), seed, g),
            "");
  EXPECT_TRUE(y.padding_is_whole());
  EXPECT_TRUE(sum.padding_is_whole());
  double squares = 0;
  for (int l = 0; l < k; ++l) squares += std::pow(x(0, 0, l) + residual(0, 0, l), 2);
  std::vector<double> of(static_cast<size_t>(k));
  for (int l = 0; l < k; ++l) {
    const double total = x(0, 0, l) + residual(0, 0, l);
    of[static_cast<size_t>(l)] = kNorm ? rounded(total / std::sqrt(squares / k + 1e-3) * norm(0, 0, l)) : x(0, 0, l);
    if (kNorm) {
      ASSERT_EQ(sum(0, 0, l), rounded(total)) << l;
    }
  }
  const double unit = std::is_same_v<T, BFloat16> ? 8e-3 : 1e-3;  // two roundings, and one of each number of the norm
  for (int i = 0; i < n; ++i) {
    const auto row = [&](int r) {
      double v = 0, size = 0;
      for (int l = 0; l < k; ++l) {
        v += of[static_cast<size_t>(l)] * w(0, r, l);
        size += std::pow(of[static_cast<size_t>(l)] * w(0, r, l), 2);
      }
      return std::pair(v, std::sqrt(size));
    };
    auto [want, size] = row(i);
    if (kGate) {
      const auto [b, other] = row(n + i);
      size = size * (1 + std::abs(b)) + other * (1 + std::abs(want));
      want = want / (1 + std::exp(-want)) * b;
    } else {
      want += bias(0, 0, i);
    }
    ASSERT_NEAR(y(0, 0, i), want, unit * (std::abs(want) + (kNorm ? size : 0)) + 1e-3) << i;
  }
}

TEST(RowLayer, IsTheNormBeforeIt) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1, 2}) {
    expect_layer<BFloat16, RowWork::norm>(7, 512, 1, seed);
    expect_layer<Half, RowWork::norm>(70, 1208, 2, seed);
  }
  expect_layer<BFloat16, RowWork::norm>(40, Shape::kLongestNorm, 2, 3);
}

TEST(RowLayer, IsTheGateBehindIt) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1, 2}) {
    expect_layer<BFloat16, RowWork::gate>(7, 512, 1, seed);
    expect_layer<Half, RowWork::gate>(70, 1208, 2, seed);
    expect_layer<BFloat16, RowWork::norm_gate>(33, 2056, 3, seed);
  }
}

}  // namespace
}  // namespace strata::cuda
