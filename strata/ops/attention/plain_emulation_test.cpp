// The kernels of attention with ordinary arithmetic on the processor (strata/cuda/tile/emulation.cuh): their own
// sources, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/attention/plain_tiles.cuh"

#include <gtest/gtest.h>

#include "strata/ops/attention/kernel_test_util.h"

namespace strata::attention_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

// The largest error in units of the largest result.
template <class T>
constexpr double kBound = std::is_same_v<T, float> ? 2e-6 : 6e-3;

template <class T>
std::string launch_plain(Problem<T>& p, const auto& kernel, int64_t heads, bool of_queries, int64_t size, int columns,
                         const auto&... more) {
  const Case& of = p.of;
  int64_t tiles = ((of_queries ? of.tq : of.tk) + plain::kTile - 1) / plain::kTile;
  Sequences sequences;
  if (!of.sequences.empty()) {
    p.make_parts(plain::kTile, plain::kTile);
    sequences = p.sequences(), tiles = of_queries ? sequences.q_tiles : sequences.k_tiles;
  }
  const int64_t parts = (size + columns - 1) / columns;
  return emulation::launch(kernel, static_cast<unsigned>(of.batch * heads * tiles * parts), plain::kThreads,
                           static_cast<size_t>(plain::kSharedBytes<float>), of.seed, p.c, more..., sequences, tiles,
                           parts);
}

template <class T, int N>
void check_forward(const Case& of) {
  SCOPED_TRACE(of.text());
  Problem<T> p(of);
  ASSERT_EQ(launch_plain(p, plain::forward_kernel<T, N>, of.heads, true, of.d, N * plain::kTile), "");
  const auto want = p.expected(false);
  EXPECT_EQ(p.difference(p.out, want.out, kBound<T>), "");
  for (size_t i = 0; i < want.lse.size(); ++i) {
    const double x = static_cast<double>(p.lse[i]), y = want.lse[i];
    // Of the lowest number it is a low one, which stays finite in units of log2(e).
    ASSERT_TRUE(x == y || std::fabs(x - y) <= 2e-6 * (1 + std::fabs(y)) || (std::isfinite(x) && x < -2e38 && y < -3e38))
        << "lse " << i << " is " << x << ", not " << y;
  }
}

template <class T, int N>
void check_backward(Case of) {
  of.lowest = false;  // lse does not tell how many keys a query sees that all have the lowest number
  SCOPED_TRACE(of.text());
  using plain::Gradient;
  Problem<T> p(of);
  if (!of.sequences.empty()) p.make_parts(1, 1);  // which the expected gradients know of
  const auto want = p.expected(true);
  std::vector<float> delta(want.lse.size()), lse(want.lse.size());
  const auto d = static_cast<size_t>(of.d);
  for (size_t i = 0; i < lse.size(); ++i) {
    double sum = of.grad_lse ? -static_cast<double>(p.grad_lse[i]) : 0;
    for (size_t x = i * d; x < (i + 1) * d; ++x) sum += want.out[x] * want.grad_out[x];
    delta[i] = static_cast<float>(sum);
    lse[i] = want.lse[i] == -INFINITY ? INFINITY : static_cast<float>(want.lse[i] * kLog2e);
  }
  const RowTerms<float> terms{delta.data(), lse.data()};
  const auto run = [&](const auto& kernel, int64_t heads, bool of_queries) {
    ASSERT_EQ(launch_plain(p, kernel, heads, of_queries, of.d, N * plain::kTile, terms), "");
  };
  run(plain::gradient_kernel<T, N, Gradient::query>, of.heads, true);
  run(plain::gradient_kernel<T, N, Gradient::key>, of.kv_heads, false);
  run(plain::gradient_kernel<T, N, Gradient::value>, of.kv_heads, false);
  EXPECT_EQ(p.difference(p.grad_q, want.grad_q, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_k, want.grad_k, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_v, want.grad_v, kBound<T>), "");
}

template <class T, int N>
void check(const Case& of) {
  check_forward<T, N>(of);
  check_backward<T, N>(of);
}

class PlainAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

// Tiles that are wholly seen and such that are not, lengths that end within tiles, sizes that fours do not divide, more
// columns than a block has, heads that share keys, sequences of their own lengths.
TEST_F(PlainAttention, Shapes) {
  check<float, 1>({.tq = 130, .tk = 150, .d = 20, .offset = 20, .grad_lse = true});
  check<float, 1>({.tq = 140, .tk = 130, .d = 37, .causal = true, .grad_lse = true, .seed = 1});
  check<float, 2>({.heads = 1, .tq = 70, .tk = 66, .d = 100, .causal = true, .offset = -10});
  check<float, 1>({.heads = 1, .tq = 5, .tk = 70, .d = 70, .seed = 2});
  check<float, 2>({.heads = 1, .tq = 3, .tk = 5, .d = 260});
  check<BFloat16, 1>(
      {.batch = 2, .heads = 2, .kv_heads = 2, .tq = 140, .tk = 90, .d = 24, .window = 30, .offset = -20});
  check<float, 1>({.heads = 1, .tq = 200, .tk = 200, .d = 8, .window = 150, .seed = 1});
  Case packed{.heads = 2, .kv_heads = 1, .tq = 160, .tk = 190, .d = 12, .causal = true, .offset = 20};
  packed.sequences = {{{40, 50}}, {{0, 9}}, {{100, 120}}, {{13, 0}}};
  check<float, 1>(packed);
}
TEST_F(PlainAttention, Options) {
  const auto with = [](Case c) {
    c.batch = 2, c.heads = 2, c.tq = 90, c.tk = 150, c.d = 12, c.offset = 60;
    check<float, 1>(c);
  };
  with({.causal = true, .mask = Mask::boolean});
  with({.window = 70, .mask = Mask::added, .mask_of_query = false});
  with({.causal = true, .dropout = 0.3, .part = true, .slopes = true, .seed = 1});
  with({.causal = true, .dropout = 0.3, .left = true, .part = true});
  with({.window = 70, .dropout = 0.3, .left = true, .lengths = true});
  with({.soft_cap = 2});
  with({.sinks = true, .lengths = true});
  with({.mask = Mask::added, .mask_f32 = true, .dropout = 0.3, .lengths = true, .soft_cap = 30});
}

}  // namespace
}  // namespace strata::attention_cuda
