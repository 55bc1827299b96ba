// The backward kernels for heads above 128 columns on the processor (strata/cuda/tile/emulation.cuh): their own sources
// against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/attention/hopper_backward_rows.cuh"
#include "strata/ops/attention/hopper_wide_backward.cuh"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/ops/attention/kernel_test_util.h"

namespace strata::attention_cuda::hopper {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of this file are not those of the library.
struct Wide : WideShape {};

template <class T>
inline constexpr double kBound = std::is_same_v<T, Half> ? 3e-3 : 2e-2;

template <class T, bool kOptions, bool kSequences>
void run(Problem<T>& p) {
  using S = Wide;
  constexpr int kSet = kOptions ? kEveryOption : kNoOptions;
  const Case& of = p.of;
  if (kSequences) p.make_parts(S::kRows, S::kTile);
  const Sequences sequences = kSequences ? p.sequences() : Sequences{};
  const int64_t heads = of.batch * of.heads;
  WideSpace space{};
  space.row_tiles = static_cast<int>(kSequences ? p.of_q.size() : (of.tq + S::kRows - 1) / S::kRows);
  space.key_tiles = static_cast<int>(kSequences ? p.of_k.size() : (of.tk + S::kTile - 1) / S::kTile);
  space.row_section = 1 + static_cast<int>(of.seed % 3), space.key_section = 3 - static_cast<int>(of.seed % 3);
  space.pitch = space.row_tiles * S::kRows;
  const int64_t rows = heads * space.pitch;
  std::vector<float4> terms(static_cast<size_t>(rows / 2), float4{NAN, NAN, NAN, NAN});
  int ticket = 0;
  BackwardSpace of_rows{};
  of_rows.lse2 = &terms[0].x, of_rows.delta = of_rows.lse2 + rows, of_rows.ticket = &ticket;
  of_rows.pitch = space.pitch;
  space.lse2 = of_rows.lse2, space.delta = of_rows.delta;
  const WideMaps maps{p.q.map(64),      p.k.map(64),      p.v.map(64),     p.grad_out.map(64),
                      p.grad_q.map(64), p.grad_k.map(64), p.grad_v.map(64)};
  std::vector<WideMaps> maps_of;
  for (const Sequence& s : p.parts)
    maps_of.push_back({p.q.map(64, s.q0, s.tq), p.k.map(64, s.k0, s.tk), p.v.map(64, s.k0, s.tk),
                       p.grad_out.map(64, s.q0, s.tq), p.grad_q.map(64, s.q0, s.tq), p.grad_k.map(64, s.k0, s.tk),
                       p.grad_v.map(64, s.k0, s.tk)});
  Options options;
  if (kOptions) options = p.options(S::kTile, S::kTile, true);
  const auto unit = static_cast<float>(kOptions ? 1 / options.lse_factor : kLog2e);
  const auto blocks_of = [](int64_t n) { return static_cast<unsigned>(n); };
  ASSERT_EQ(emulation::launch(backward_rows_kernel<T, S>, blocks_of((rows * (S::D / 8) + 255) / 256), 256, 0, of.seed,
                              p.c, of_rows, sequences, unit),
            "");
  const auto* const list = static_cast<const WideMaps*>(maps_of.data());
  ASSERT_EQ(
      emulation::launch(wide_keys_kernel<T, S, kSequences, kSet>, blocks_of(of.batch * of.kv_heads * space.key_tiles),
                        S::kThreads, S::kKeysSharedBytes, of.seed, p.c, maps, space, sequences, list, options),
      "");
  if (kOptions) options = p.options(S::kTile, S::kTile, false);
  ASSERT_EQ(emulation::launch(wide_queries_kernel<T, S, kSequences, kSet>, blocks_of(heads * space.row_tiles),
                              S::kThreads, S::kQueriesSharedBytes, of.seed, p.c, maps, space, sequences, list, options),
            "");
}

template <class T, bool kOptions, bool kSequences = false>
void check_backward(Case of) {
  // lse does not tell how many keys a query sees that all have bf16's lowest number: it is that number.
  if (std::is_same_v<T, BFloat16>) of.lowest = false;
  SCOPED_TRACE(of.text());
  Problem<T> p(of);
  if (kSequences) p.make_parts(Wide::kRows, Wide::kTile);
  const auto want = p.expected(true);
  size_t at = 0;
  p.out.each([&](auto... i) { p.out.at(i...) = T(static_cast<float>(want.out[at++])); });
  for (size_t i = 0; i < want.lse.size(); ++i) p.lse[i] = static_cast<float>(want.lse[i]);
  run<T, kOptions, kSequences>(p);
  EXPECT_EQ(p.difference(p.grad_q, want.grad_q, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_k, want.grad_k, kBound<T>), "");
  EXPECT_EQ(p.difference(p.grad_v, want.grad_v, kBound<T>), "");
}

class HopperWideAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

// One dtype a set of options, so that each kernel is compiled once.
#ifndef STRATA_OTHER_DTYPES
using Plain = BFloat16;
using WithOptions = Half;
#else
using Plain = Half;
using WithOptions = BFloat16;
#endif

// Each tile of each head once, the short section first, within one the heads' first tiles before their second ones.
TEST_F(HopperWideAttention, SectionsHaveEachItemOnce) {
  const Sections order{5, 7, 3};
  std::vector<std::array<int, 2>> items;
  for (int at = 0; at < 35; ++at) {
    std::array<int, 2> x;
    order.locate(at, x[0], x[1]);
    items.push_back(x);
  }
  using Item = std::array<int, 2>;
  EXPECT_EQ(items[4], (Item{4, 0}));
  EXPECT_EQ(items[5], (Item{0, 1}));
  EXPECT_EQ(items[7], (Item{0, 3}));
  EXPECT_EQ(items[8], (Item{1, 1}));
  std::sort(items.begin(), items.end());
  for (size_t i = 0; i < items.size(); ++i)
    EXPECT_EQ(items[i], (Item{static_cast<int>(i) / 7, static_cast<int>(i) % 7}));
}
// Lengths that end within tiles, heads that share keys, more tiles than places, causal or not.
TEST_F(HopperWideAttention, BackwardPlain) {
  Case c{.d = 256, .grad_lse = true};
  for (const uint64_t seed : {0, 1, 2}) {
    c.seed = seed, c.tq = 70, c.tk = 150, c.heads = 2, c.kv_heads = 1, c.causal = seed == 1, c.offset = 80;
    check_backward<Plain, false>(c);
  }
  c.tq = 330, c.tk = 300, c.heads = 1, c.offset = 0;
  check_backward<Plain, false>(c);
  c.causal = true, c.offset = -30, c.seed = 3;
  check_backward<Plain, false>(c);
}
TEST_F(HopperWideAttention, BackwardOfOtherSizesAndWindows) {
  check_backward<Plain, false>({.heads = 1, .tq = 260, .tk = 200, .d = 136, .window = 70, .offset = 60, .seed = 4});
  check_backward<Plain, false>({.batch = 2, .heads = 2, .kv_heads = 2, .tq = 65, .tk = 64, .d = 192, .causal = true});
  check_backward<Plain, false>({.heads = 1, .tq = 1, .tk = 1, .d = 200});
  // Keys that no query sees, and queries that see nothing.
  check_backward<Plain, false>({.heads = 1, .tq = 64, .tk = 300, .d = 256, .causal = true, .offset = 3});
  check_backward<Plain, false>({.heads = 1, .tq = 300, .tk = 64, .d = 256, .causal = true, .offset = -200});
}
TEST_F(HopperWideAttention, BackwardEveryOption) {
  bool causal = false;
  const auto with = [&](Case c) {
    c.batch = 2, c.heads = 2, c.tq = 90, c.tk = 290, c.d = 256, c.offset = 170, c.window = 210;
    c.causal = causal = !causal, c.seed = causal;
    check_backward<WithOptions, true>(c);
  };
  with({.slopes = true});
  with({.soft_cap = 2});
  with({.sinks = true, .lengths = true});
  with({.mask = Mask::boolean, .dropout = 0.3, .drawn = false, .part = true, .slopes = true, .soft_cap = 30});
  with({.mask = Mask::added, .dropout = 0.3, .lengths = true});
  with({.mask = Mask::added, .mask_f32 = true, .slopes = true, .sinks = true});
}
// Tiles of which a mask shows nothing, to one or both halves of a block's queries.
TEST_F(HopperWideAttention, BackwardSeenKeys) {
  check_backward<WithOptions, true>({.heads = 2, .tq = 330, .tk = 300, .d = 256, .mask = Mask::boolean, .seed = 1});
  Case c{.batch = 2, .heads = 2, .kv_heads = 2, .tq = 130, .tk = 150, .d = 256, .mask = Mask::boolean};
  c.mask_of_batch = c.mask_of_query = false;
  check_backward<WithOptions, true>(c);
  c.mask_of_query = true, c.mask_of_head = c.mask_of_key = false;
  check_backward<WithOptions, true>(c);
}
// Sequences of different lengths, one empty, with rows behind the last.
TEST_F(HopperWideAttention, BackwardOfSequences) {
  Case c{.heads = 2, .kv_heads = 1, .tq = 420, .tk = 400, .d = 256};
  c.sequences = {{{70, 50}}, {{0, 9}}, {{200, 260}}, {{130, 0}}, {{9, 70}}};
  check_backward<Plain, false, true>(c);
  c.causal = true, c.offset = 20, c.seed = 1;
  check_backward<Plain, false, true>(c);
}
// However copies and products come, each sum has its terms in one order.
TEST_F(HopperWideAttention, BackwardHasTheSameBitsEveryTime) {
  std::vector<double> first[3];
  for (const uint64_t seed : {0, 5, 6}) {
    Problem<Plain> p({.heads = 2, .tq = 200, .tk = 150, .d = 256, .causal = true, .seed = seed});
    const auto want = p.expected(true);
    size_t at = 0;
    p.out.each([&](auto... i) { p.out.at(i...) = Plain(static_cast<float>(want.out[at++])); });
    for (size_t i = 0; i < want.lse.size(); ++i) p.lse[i] = static_cast<float>(want.lse[i]);
    run<Plain, false, false>(p);
    const std::vector<double> got[3] = {p.grad_q.numbers(), p.grad_k.numbers(), p.grad_v.numbers()};
    for (int i = 0; i < 3; ++i) {
      if (seed == 0) first[i] = got[i];
      EXPECT_EQ(got[i], first[i]) << "of operand " << i << " with seed " << seed;
    }
  }
}

}  // namespace
}  // namespace strata::attention_cuda::hopper
