// The Hopper kernels of attention on the processor (strata/cuda/tile/emulation.cuh): their own sources, for each set of
// options, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/attention/hopper_backward.cuh"
#include "strata/ops/attention/hopper_backward_rows.cuh"
#include "strata/ops/attention/hopper_forward.cuh"

#include <gtest/gtest.h>

#include "strata/ops/attention/kernel_test_util.h"

namespace strata::attention_cuda::hopper {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of this file are not those of the library.
template <class S>
struct Of : S {};

template <class T>
inline constexpr double kBound = std::is_same_v<T, Half> ? 3e-3 : 2e-2;

template <class T, int kSet, template <int> class Shape, bool kSequences = false>
void check_forward(const Case& of) {
  SCOPED_TRACE(of.text());
  using S = Of<Shape<kSet>>;
  Problem<T> p(of);
  Options options;
  CUtensorMap mask;
  if (kSet != kNoOptions) {
    options = p.options(64, S::kKeys, false);
    if constexpr (S::kMasks) mask = p.mask_map(64, options);
    ASSERT_TRUE(kSet == kEveryOption || set_of(p.c, options) == kSet);
  }
  const ForwardMaps maps{p.q.map(64), p.k.map(S::kKeys), p.v.map(S::kKeys), p.out.map(64)};
  Schedule schedule{static_cast<int>((of.tq + S::kQueries - 1) / S::kQueries), static_cast<int>(of.batch * of.heads),
                    static_cast<int>(of.heads / of.kv_heads)};
  Sequences sequences;
  std::vector<ForwardMaps> maps_of;
  if (kSequences) {
    p.make_parts(S::kQueries, S::kKeys), sequences = p.sequences(), schedule.tiles = static_cast<int>(p.of_q.size());
    for (const Sequence& s : p.parts)
      maps_of.push_back({p.q.map(64, s.q0, s.tq), p.k.map(S::kKeys, s.k0, s.tk), p.v.map(S::kKeys, s.k0, s.tk),
                         p.out.map(64, s.q0, s.tq)});
  }
  const unsigned blocks = std::min(of.blocks, static_cast<unsigned>(schedule.total()));
  const size_t bytes = options.copied ? S::kSharedBytesWithMasks : S::kSharedBytes;
  ASSERT_EQ(emulation::launch_together(forward_hopper_kernel<T, S, kSequences, kSet>, blocks, S::kThreads, bytes,
                                       of.seed, p.c, maps, schedule, sequences,
                                       static_cast<const ForwardMaps*>(maps_of.data()), options, mask),
            "");
  const auto want = p.expected(false);
  EXPECT_EQ(p.difference(p.out, want.out, kBound<T>), "");
  for (size_t i = 0; i < want.lse.size(); ++i) {
    const double x = p.lse[i], y = want.lse[i];
    ASSERT_TRUE(x == y || std::fabs(x - y) <= 2e-4 * (1 + std::fabs(y))) << "lse " << i << " is " << x << ", not " << y;
  }
}

using BackwardOf64 = BackwardShape<64, 128, 2, 2>;
using BackwardOf128 = BackwardShape<128, 64, 2, 1>;

template <class T, int kSet, class Shape, bool kSequences = false>
void check_backward(Case of) {
  // lse does not tell how many keys a query sees that all have bf16's lowest number: it is that number.
  if (std::is_same_v<T, BFloat16>) of.lowest = false;
  SCOPED_TRACE(of.text());
  using S = Of<Shape>;
  Problem<T> p(of);
  if (kSequences) p.make_parts(S::kRows, S::kKeys);
  const Sequences sequences = kSequences ? p.sequences() : Sequences{};
  const auto want = p.expected(true);
  size_t at = 0;
  p.out.each([&](auto... i) { p.out.at(i...) = T(static_cast<float>(want.out[at++])); });
  for (size_t i = 0; i < want.lse.size(); ++i) p.lse[i] = static_cast<float>(want.lse[i]);
  Options options;
  CUtensorMap mask;
  if (kSet != kNoOptions) {
    options = p.options(S::kRows, S::kKeys, true), mask = p.mask_map(S::kRows, options);
    ASSERT_TRUE(kSet == kEveryOption || set_of(p.c, options) == kSet);
  }
  const int64_t heads = of.batch * of.heads;
  const auto most = static_cast<int>(of.blocks);  // as if there were so many multiprocessors
  BackwardSpace space{};
  space.row_tiles = static_cast<int>((of.tq + S::kRows - 1) / S::kRows);
  space.key_tiles = static_cast<int>((of.tk + S::kKeys - 1) / S::kKeys);
  if (kSequences) space.row_tiles = static_cast<int>(p.of_q.size()), space.key_tiles = static_cast<int>(p.of_k.size());
  space.together = most, space.pitch = space.row_tiles * S::kRows;
  space.rotated = !of.causal && of.window == 0 && (kSequences || space.key_tiles <= most);
  const int64_t rows = heads * space.pitch, tiles = heads * space.row_tiles;
  std::vector<float4> sums(static_cast<size_t>(rows * S::D / 4), float4{NAN, NAN, NAN, NAN});
  std::vector<float4> terms(static_cast<size_t>(rows / 2), float4{NAN, NAN, NAN, NAN});
  std::vector<int> counts(static_cast<size_t>(tiles + 1), -1);
  space.sums = &sums[0].x, space.lse2 = &terms[0].x, space.delta = space.lse2 + rows;
  space.counts = counts.data(), space.ticket = space.counts + tiles;
  const BackwardMaps maps{p.q.map(S::kRows),        p.k.map(S::kKeys), p.v.map(S::kKeys),
                          p.grad_out.map(S::kRows), p.grad_k.map(64),  p.grad_v.map(64)};
  std::vector<BackwardMaps> maps_of;
  for (const Sequence& s : p.parts)
    maps_of.push_back({p.q.map(S::kRows, s.q0, s.tq), p.k.map(S::kKeys, s.k0, s.tk), p.v.map(S::kKeys, s.k0, s.tk),
                       p.grad_out.map(S::kRows, s.q0, s.tq), p.grad_k.map(64, s.k0, s.tk),
                       p.grad_v.map(64, s.k0, s.tk)});
  const auto unit = static_cast<float>(OptionsIn<kSet>::kPlainScores ? kLog2e : 1 / options.lse_factor);
  const auto blocks_of = [](int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); };
  ASSERT_EQ(emulation::launch(backward_rows_kernel<T, S>, blocks_of(rows * (S::D / 8)), 256, 0, of.seed, p.c, space,
                              sequences, unit),
            "");
  const int items = static_cast<int>(of.batch * of.kv_heads) * space.key_tiles;
  const auto blocks = static_cast<unsigned>(S::kStays ? std::min(items, most) : items);
  constexpr size_t kBytes = S::kSharedBytes + (kSet == kNoOptions ? 0 : S::kOptionBytes);
  ASSERT_EQ(emulation::launch_together(backward_hopper_kernel<T, S, kSequences, kSet>, blocks, S::kThreads, kBytes,
                                       of.seed, p.c, maps, space, sequences,
                                       static_cast<const BackwardMaps*>(maps_of.data()), options, mask),
            "");
  ASSERT_EQ(emulation::launch(backward_queries_kernel<T, S>, blocks_of(tiles * (S::kRows * S::D / 16)), 256, 0, of.seed,
                              p.c, space, sequences, options),
            "");
  EXPECT_EQ(p.difference(p.grad_q, want.grad_q, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_k, want.grad_k, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_v, want.grad_v, kBound<T>), "");
}

class HopperAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

// One dtype a head size, so that each kernel is compiled once.
#ifndef STRATA_OTHER_DTYPES
using At64 = BFloat16;
using At128 = Half;
#else
using At64 = Half;
using At128 = BFloat16;
#endif

// Calls that a set of options is tried with: lengths that end within tiles, several blocks and items, causal or not.
template <class Check>
void each_call(const Case& like, const Check& check) {
  Case c = like;
  for (const uint64_t seed : {0, 1, 2}) {  // two tiles of keys, one head a turn
    c.seed = seed, c.tq = 70, c.tk = 150, c.heads = 2, c.kv_heads = 1, c.causal = seed == 1, c.offset = 80;
    check(c);
  }
  // Several items a block, and heads that share keys.
  c.seed = 3, c.batch = 2, c.tq = 200, c.tk = 300, c.blocks = 3, c.offset = 0;
  check(c);
  c.seed = 0, c.causal = true, c.offset = 100;
  check(c);
}

// Masks that are one for all batches, heads, queries or keys.
template <class Check>
void each_broadcast(Case c, const Check& check) {
  c.mask_of_batch = false;
  check(c);
  c.mask_of_query = false;
  check(c);
  c.mask_of_batch = c.mask_of_query = true, c.mask_of_head = c.mask_of_key = false;
  check(c);
}

// What the kernel for every option is tried with.
template <class Check>
void each_option(int64_t d, const Check& check) {
  bool causal = d == 64;
  const auto with = [&](Case c) {
    c.batch = 2, c.heads = 2, c.tq = 90, c.tk = 290, c.d = d, c.offset = 170, c.window = 210;
    c.causal = causal = !causal, c.seed = causal;
    check(c);
  };
  with({.slopes = true});
  with({.soft_cap = 2});
  with({.sinks = true, .lengths = true});
  with({.mask = Mask::boolean, .dropout = 0.3, .drawn = false, .slopes = true, .soft_cap = 30});
  with({.mask = Mask::added, .dropout = 0.3, .lengths = true});
  with({.mask = Mask::added, .mask_f32 = true, .slopes = true, .sinks = true});
}

template <int kSet>
void check_forward_both(Case c) {
  each_call(c, [](const Case& of) { check_forward<At64, kSet, ShapeOf64>(of); });
  c.d = 128;
  each_call(c, [](const Case& of) { check_forward<At128, kSet, ShapeOf128>(of); });
}

TEST_F(HopperAttention, ForwardPlain) {
  check_forward_both<kNoOptions>({});
  check_forward<At64, kNoOptions, ShapeOf64>({.tq = 200, .tk = 300, .d = 40, .window = 70, .offset = 60, .seed = 4});
}
TEST_F(HopperAttention, ForwardSeenKeys) {
  check_forward_both<kSeenKeys>({.mask = Mask::boolean});
  Case c{.batch = 2, .heads = 3, .kv_heads = 3, .tq = 130, .tk = 270, .mask = Mask::boolean, .seed = 1};
  each_broadcast(c, [](const Case& of) { check_forward<At64, kSeenKeys, ShapeOf64>(of); });
}
TEST_F(HopperAttention, ForwardAddedMask) {
  check_forward_both<kAddedMask>({.mask = Mask::added});
  Case c{.batch = 2, .heads = 3, .kv_heads = 3, .tq = 130, .tk = 270, .mask = Mask::added, .seed = 1};
  c.mask_of_batch = c.mask_of_query = false;
  check_forward<At64, kAddedMask, ShapeOf64>(c);
}
TEST_F(HopperAttention, ForwardDropped) {
  check_forward_both<kDropped>({.dropout = 0.3});
}
TEST_F(HopperAttention, ForwardSeenKeysDropped) {
  check_forward_both<(kSeenKeys | kDropped)>({.mask = Mask::boolean, .dropout = 0.3});
}
TEST_F(HopperAttention, ForwardEveryOption) {
  each_option(64, [](const Case& of) { check_forward<At64, kEveryOption, ShapeOf64>(of); });
  each_option(128, [](const Case& of) { check_forward<At128, kEveryOption, ShapeOf128>(of); });
  Case c{.tq = 66, .tk = 140, .dropout = 0.3, .drawn = false};  // numbers by fours
  check_forward<At64, kEveryOption, ShapeOf64>(c);
  c.part = true;
  check_forward<At64, kEveryOption, ShapeOf64>(c);
  check_backward<At64, kEveryOption, BackwardOf64>(c);
  c.tk = 137;
  check_forward<At64, kEveryOption, ShapeOf64>(c);
  check_backward<At64, kEveryOption, BackwardOf64>(c);
}

template <int kSet>
void check_backward_both(Case c) {
  each_call(c, [](const Case& of) { check_backward<At64, kSet, BackwardOf64>(of); });
  c.d = 128;
  each_call(c, [](const Case& of) { check_backward<At128, kSet, BackwardOf128>(of); });
}

TEST_F(HopperAttention, BackwardPlain) {
  check_backward_both<kNoOptions>({.grad_lse = true});
  check_backward<At64, kNoOptions, BackwardOf64>(
      {.tq = 200, .tk = 300, .d = 40, .window = 70, .offset = 60, .seed = 4});
}
TEST_F(HopperAttention, BackwardSeenKeys) {
  check_backward_both<kSeenKeys>({.mask = Mask::boolean});
  Case c{.batch = 2, .heads = 3, .kv_heads = 3, .tq = 130, .tk = 270, .mask = Mask::boolean, .seed = 1};
  each_broadcast(c, [](const Case& of) { check_backward<At64, kSeenKeys, BackwardOf64>(of); });
}
TEST_F(HopperAttention, BackwardAddedMask) {
  check_backward_both<kAddedMask>({.mask = Mask::added});
  Case c{.batch = 2, .heads = 3, .kv_heads = 3, .tq = 130, .tk = 270, .mask = Mask::added, .seed = 1};
  c.mask_of_batch = c.mask_of_query = false;
  check_backward<At64, kAddedMask, BackwardOf64>(c);
}
TEST_F(HopperAttention, BackwardDropped) {
  check_backward_both<kDropped>({.dropout = 0.3});
}
TEST_F(HopperAttention, BackwardSeenKeysDropped) {
  check_backward_both<(kSeenKeys | kDropped)>({.mask = Mask::boolean, .dropout = 0.3});
}
TEST_F(HopperAttention, BackwardEveryOption) {
  each_option(64, [](const Case& of) { check_backward<At64, kEveryOption, BackwardOf64>(of); });
  each_option(128, [](const Case& of) { check_backward<At128, kEveryOption, BackwardOf128>(of); });
}

// Sequences of different lengths, one empty, with rows behind the last.
template <class Check>
void each_packed(const Check& check) {
  Case c{.heads = 4, .kv_heads = 2, .tq = 420, .tk = 400, .blocks = 4};
  c.sequences = {{{70, 50}}, {{0, 9}}, {{200, 260}}, {{130, 0}}, {{9, 70}}};
  check(c);
  c.causal = true, c.offset = 20, c.seed = 1;
  check(c);
}
TEST_F(HopperAttention, Sequences) {
  each_packed([](const Case& of) { check_forward<At64, kNoOptions, ShapeOf64, true>(of); });
  each_packed([](const Case& of) { check_backward<At64, kNoOptions, BackwardOf64, true>(of); });
  each_packed([](Case of) {
    of.d = 128;
    check_backward<At128, kNoOptions, BackwardOf128, true>(of);
  });
}

}  // namespace
}  // namespace strata::attention_cuda::hopper
