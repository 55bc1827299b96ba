// The kernels of attention on mma.sync on the processor (strata/cuda/tile/emulation.cuh): their own sources, for
// operands of 16 bits, of TF32 and of f32 by three products of TF32, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/attention/mma_backward.cuh"
#include "strata/ops/attention/mma_forward.cuh"
#include "strata/ops/attention/mma_pairs.cuh"
#include "strata/ops/attention/padded_heads.cuh"

#include <gtest/gtest.h>

#include "strata/ops/attention/kernel_test_util.h"

namespace strata::attention_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of this file are not those of the library.
template <class M>
struct Of : M {};
using Halves = Of<Sixteen<BFloat16>>;
using OnePart = Of<Singles<1>>;
using TwoParts = Of<Singles<2>>;

// The largest error in units of the largest result. TF32 has 10 bits of mantissa, as f16 has: operands, weights and
// gradients of scores are wrong by up to 2^-11 of themselves. Two such numbers leave 2^-22 out, of each of the terms.
template <class M>
inline constexpr double kBound = M::kExact                              ? 4e-6
                                 : std::is_same_v<typename M::T, float> ? 2e-3
                                                                        : 2e-2;

template <class M, int D, bool kOptions>
void check_forward(const Case& of) {
  SCOPED_TRACE(of.text());
  using S = mma_forward::ForwardShape<M, D>;
  Problem<typename M::T> p(of);
  Options options;
  if (kOptions) options = p.options(S::kQueries, 64, false);
  int64_t tiles = (of.tq + S::kQueries - 1) / S::kQueries;
  Sequences sequences;
  if (!of.sequences.empty()) {
    p.make_parts(S::kQueries, S::kQueries);
    sequences = p.sequences(), tiles = sequences.q_tiles;
  }
  ASSERT_EQ(emulation::launch(mma_forward::forward_mma_kernel<M, D, kOptions>,
                              static_cast<unsigned>(of.batch * of.heads * tiles), S::kThreads, S::kSharedBytes, of.seed,
                              p.c, sequences, options),
            "");
  const auto want = p.expected(false);
  EXPECT_EQ(p.difference(p.out, want.out, kBound<M>), "");
  for (size_t i = 0; i < want.lse.size(); ++i) {
    const double x = p.lse[i], y = want.lse[i];
    ASSERT_TRUE(x == y || std::fabs(x - y) <= (M::kExact ? 2e-6 : 5e-4) * (1 + std::fabs(y)))
        << "lse " << i << " is " << x << ", not " << y;
  }
}

template <class M, int D, bool kOptions, mma_backward::Of kOf>
void run_backward(Problem<typename M::T>& p, RowTerms<float> terms) {
  using S = mma_backward::BackwardShape<M, D, kOf>;
  constexpr bool kOfQuery = kOf == mma_backward::Of::query;
  const Case& of = p.of;
  Options options;
  if (kOptions) options = kOfQuery ? p.options(S::kRows, 64, false) : p.options(64, S::kRows, true);
  int64_t tiles = ((kOfQuery ? of.tq : of.tk) + S::kRows - 1) / S::kRows;
  Sequences sequences;
  if (!of.sequences.empty()) {
    p.make_parts(S::kRows, S::kRows);
    sequences = p.sequences(), tiles = kOfQuery ? sequences.q_tiles : sequences.k_tiles;
  }
  ASSERT_EQ(emulation::launch(mma_backward::backward_mma_kernel<M, D, kOf, kOptions>,
                              static_cast<unsigned>(of.batch * (kOfQuery ? of.heads : of.kv_heads) * tiles),
                              S::kThreads, S::kSharedBytes, of.seed, p.c, terms, sequences, options),
            "");
}

template <class M, int D, bool kOptions>
void check_backward(Case of) {
  // lse does not tell how many keys a query sees that all have the lowest number: it is that number.
  of.lowest = false;
  SCOPED_TRACE(of.text());
  using T = typename M::T;
  Problem<T> p(of);
  if (!of.sequences.empty()) p.make_parts(1, 1);  // which the expected gradients know of
  const auto want = p.expected(true);
  size_t at = 0;
  p.out.each([&](auto... i) { p.out.at(i...) = T(static_cast<float>(want.out[at++])); });
  // What row_terms() makes for a card.
  std::vector<float> delta(want.lse.size()), lse(want.lse.size());
  const double unit = kOptions ? 1 / score_unit(p.c) : kLog2e;
  for (size_t i = 0; i < lse.size(); ++i) {
    double sum = of.grad_lse ? -p.grad_lse[i] : 0;
    for (int64_t d = 0; d < of.d; ++d) {
      const size_t x = i * static_cast<size_t>(of.d) + static_cast<size_t>(d);
      sum += want.out[x] * want.grad_out[x];
    }
    delta[i] = static_cast<float>(sum);
    lse[i] = want.lse[i] == -INFINITY ? INFINITY : static_cast<float>(want.lse[i] * unit);
  }
  const RowTerms<float> terms{delta.data(), lse.data()};
  using K = mma_backward::Of;
  if constexpr (D <= 128) {
    run_backward<M, D, kOptions, K::key_and_value>(p, terms);
  } else {
    run_backward<M, D, kOptions, K::key>(p, terms);
    run_backward<M, D, kOptions, K::value>(p, terms);
  }
  run_backward<M, D, kOptions, K::query>(p, terms);
  EXPECT_EQ(p.difference(p.grad_q, want.grad_q, kBound<M>), "");
  EXPECT_EQ(p.difference(p.grad_k, want.grad_k, kBound<M>), "");
  EXPECT_EQ(p.difference(p.grad_v, want.grad_v, kBound<M>), "");
}

// The gradient of an additive mask [heads, queries, keys] that all batches share, or of one for all heads and queries
// too.
template <class M, int D>
void check_pairs(const Case& of, bool of_queries) {
  SCOPED_TRACE(of.text());
  Problem<typename M::T> p(of);
  const auto want = p.expected(true);
  const auto n = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<float> delta(want.lse.size());
  for (size_t i = 0; i < delta.size(); ++i) {
    p.lse[i] = static_cast<float>(want.lse[i]);
    for (size_t d = 0; d < n(of.d); ++d)
      delta[i] += static_cast<float>(want.out[i * n(of.d) + d] * want.grad_out[i * n(of.d) + d]);
  }
  std::vector<double> sums(n(of_queries ? of.heads * of.tq * of.tk : of.tk), 0);
  for (int64_t b = 0; b < of.batch; ++b)
    for (int64_t h = 0; h < of.heads; ++h)
      for (int64_t i = 0; i < of.tq; ++i)
        for (int64_t j = 0; j < of.tk; ++j) {
          if (of.causal && j > i + of.offset) continue;
          double s = 0, dp = 0;
          const int64_t hk = h / (of.heads / of.kv_heads), row = (b * of.heads + h) * of.tq + i;
          for (int64_t d = 0; d < of.d; ++d) {
            s += p.q(b, h, i, d) * p.k(b, hk, j, d) * p.c.scale;
            dp += p.grad_out(b, h, i, d) * p.v(b, hk, j, d);
          }
          sums[n(of_queries ? (h * of.tq + i) * of.tk + j : j)] +=
              std::exp(s - want.lse[n(row)]) * (dp - static_cast<double>(delta[n(row)]));
        }
  Options options = p.options(mma_pairs::kRows, mma_pairs::kKeys, false);
  std::vector<float> got(sums.size(), NAN);
  const auto q_tiles = static_cast<int>((of.tq + mma_pairs::kRows - 1) / mma_pairs::kRows),
             k_tiles = static_cast<int>((of.tk + mma_pairs::kKeys - 1) / mma_pairs::kKeys),
             batch = static_cast<int>(of.batch), heads = static_cast<int>(of.heads);
  mma_pairs::Pairs pairs{};
  pairs.to = got.data(), pairs.dtype = DType::f32, pairs.gradient = true, pairs.factor = 1;
  pairs.key = 1, pairs.parts = 1, pairs.numel = static_cast<int64_t>(got.size());
  for (int i = 0; i < 4; ++i) pairs.blocks[i] = pairs.sums[i] = 1;
  pairs.sums[0] = batch, pairs.blocks[3] = k_tiles;
  if (of_queries) {
    pairs.query = of.tk, pairs.head = of.tq * of.tk, pairs.blocks[1] = heads, pairs.blocks[2] = q_tiles;
  } else {
    pairs.sums[1] = heads, pairs.sums[2] = q_tiles;
  }
  pairs.part_sums = pairs.sums[0] * pairs.sums[1] * pairs.sums[2];
  const int blocks = pairs.blocks[1] * pairs.blocks[2] * pairs.blocks[3];
  ASSERT_EQ(emulation::launch(mma_pairs::pairs_kernel<M, D>, static_cast<unsigned>(blocks), mma_pairs::kThreads,
                              mma_pairs::kSharedBytes<M, D>, of.seed, p.c, pairs,
                              static_cast<const float*>(delta.data()), options),
            "");
  for (size_t i = 0; i < sums.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - sums[i]), kBound<M> * (of_queries ? 2 : 20))
        << i << " is " << got[i] << ", not " << sums[i];
}

template <class T>
void copy_padded(const HeadCopies& copies, uint64_t seed) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr int kRows = kCopyThreads / kCopyLanes<Word>;
  ASSERT_EQ(emulation::launch(copy_heads_kernel<Word>, static_cast<unsigned>((copies.rows() + kRows - 1) / kRows),
                              kCopyThreads, 0, seed, copies),
            "");
}

// Heads that the kernels do not take: their operands copied into padded rows, the kernels on those, results copied out.
// A result beside which something is written, or a padded row whose rest is not 0, is an error.
template <class M, int D>
void check_padded(const Case& of) {
  SCOPED_TRACE(of.text());
  using T = typename M::T;
  using S = mma_forward::ForwardShape<M, D>;
  using K = mma_backward::Of;
  Problem<T> p(of);
  const AttentionCall whole = p.c;
  std::vector<T> memory;
  const auto pad = [&](bool backward) {
    memory.assign(static_cast<size_t>(pad_heads(whole, backward, nullptr).numbers) + 8, T(NAN));
    char* const at = reinterpret_cast<char*>(memory.data());
    PaddedHeads padded = pad_heads(whole, backward, at + (16 - reinterpret_cast<uintptr_t>(at) % 16) % 16);
    copy_padded<T>(padded.before, of.seed);
    return padded;
  };
  const auto want = p.expected(true);
  const PaddedHeads forward = pad(false);
  ASSERT_EQ(forward.call.d, (of.d + 7) / 8 * 8);
  ASSERT_EQ(forward.call.scale, whole.scale);
  ASSERT_EQ(emulation::launch(mma_forward::forward_mma_kernel<M, D, false>,
                              static_cast<unsigned>(of.batch * of.heads * ((of.tq + S::kQueries - 1) / S::kQueries)),
                              S::kThreads, S::kSharedBytes, of.seed, forward.call, Sequences{}, Options{}),
            "");
  copy_padded<T>(forward.after, of.seed);
  EXPECT_EQ(p.difference(p.out, want.out, kBound<M>), "");

  const PaddedHeads backward = pad(true);
  std::vector<float> delta(want.lse.size()), lse(want.lse.size());
  for (size_t i = 0; i < lse.size(); ++i) {
    double sum = 0;
    for (size_t d = i * static_cast<size_t>(of.d); d < (i + 1) * static_cast<size_t>(of.d); ++d)
      sum += want.out[d] * want.grad_out[d];
    delta[i] = static_cast<float>(sum), lse[i] = static_cast<float>(want.lse[i] * kLog2e);
  }
  const RowTerms<float> terms{delta.data(), lse.data()};
  p.c = backward.call;
  run_backward<M, D, false, K::key_and_value>(p, terms);
  run_backward<M, D, false, K::query>(p, terms);
  copy_padded<T>(backward.after, of.seed);
  EXPECT_EQ(p.difference(p.grad_q, want.grad_q, kBound<M>), "");
  EXPECT_EQ(p.difference(p.grad_k, want.grad_k, kBound<M>), "");
  EXPECT_EQ(p.difference(p.grad_v, want.grad_v, kBound<M>), "");
}

class MmaAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  }
};

// Lengths that end within tiles, several blocks, heads that share keys, causal, windows, sequences of their own
// lengths.
template <class Check>
void each_plain(int64_t d, const Check& check) {
  Case c{.tq = 70, .tk = 150, .d = d, .offset = 80, .grad_lse = true};
  check(c);
  c.causal = true, c.seed = 1;
  check(c);
  check({.batch = 2, .heads = 2, .kv_heads = 2, .tq = 140, .tk = 90, .d = d, .window = 30, .offset = -20, .seed = 2});
  check({.heads = 2, .kv_heads = 2, .tq = 5, .tk = 40, .d = d - 8});
  Case packed{.heads = 2, .kv_heads = 1, .tq = 160, .tk = 190, .d = d, .causal = true, .offset = 20};
  packed.sequences = {{{40, 50}}, {{0, 9}}, {{100, 120}}, {{13, 0}}};
  check(packed);
}
template <class Check>
void each_option(int64_t d, const Check& check) {
  bool causal = false;
  const auto with = [&](Case c) {
    c.batch = 2, c.heads = 2, c.tq = 90, c.tk = 150, c.d = d, c.offset = 60;
    c.causal = causal = !causal, c.seed = causal;
    check(c);
  };
  with({.mask = Mask::boolean});
  with({.window = 70, .mask = Mask::added, .mask_of_query = false});
  with({.dropout = 0.3, .drawn = false, .slopes = true});
  with({.soft_cap = 2});
  with({.sinks = true, .lengths = true});
  with({.mask = Mask::added, .mask_f32 = true, .dropout = 0.3, .drawn = false, .lengths = true, .soft_cap = 30});
  Case fours{.tq = 40, .tk = 84, .d = d, .dropout = 0.3, .drawn = false};  // numbers by fours
  check(fours);
  fours.part = true;
  check(fours);
  fours.tk = 81;
  check(fours);
}

TEST_F(MmaAttention, ForwardOfSixteenBits) {
  each_plain(64, check_forward<Halves, 64, false>);
  each_option(64, check_forward<Halves, 64, true>);
}
TEST_F(MmaAttention, ForwardOfOnePart) {
  each_plain(96, check_forward<OnePart, 96, false>);
  each_option(64, check_forward<OnePart, 64, true>);
}
TEST_F(MmaAttention, ForwardOfTwoParts) {
  each_plain(32, check_forward<TwoParts, 32, false>);
  each_option(32, check_forward<TwoParts, 32, true>);
  check_forward<TwoParts, 128, false>({.tq = 70, .tk = 90, .d = 120, .causal = true, .offset = 20, .seed = 1});
  check_forward<TwoParts, 256, false>({.tq = 20, .tk = 70, .d = 256});
  check_forward<TwoParts, 256, true>({.tq = 20, .tk = 70, .d = 240, .dropout = 0.3, .drawn = false, .slopes = true});
}
TEST_F(MmaAttention, BackwardOfSixteenBits) {
  each_plain(64, check_backward<Halves, 64, false>);
  each_option(64, check_backward<Halves, 64, true>);
}
TEST_F(MmaAttention, BackwardOfOnePart) {
  each_plain(96, check_backward<OnePart, 96, false>);
  each_option(64, check_backward<OnePart, 64, true>);
}
TEST_F(MmaAttention, BackwardOfTwoParts) {
  each_plain(32, check_backward<TwoParts, 32, false>);
  each_option(32, check_backward<TwoParts, 32, true>);
  check_backward<TwoParts, 128, false>({.tq = 140, .tk = 90, .d = 120, .causal = true, .offset = -50, .seed = 1});
  check_backward<TwoParts, 256, false>({.tq = 20, .tk = 70, .d = 256});
  check_backward<TwoParts, 256, true>({.tq = 20, .tk = 70, .d = 240, .dropout = 0.3, .drawn = false, .soft_cap = 3});
}
TEST_F(MmaAttention, PaddedHeads) {
  const Case c{
      .batch = 2, .heads = 2, .kv_heads = 1, .tq = 70, .tk = 90, .d = 59, .causal = true, .offset = 20, .seed = 1};
  check_padded<Halves, 64>(c);
  check_padded<TwoParts, 64>(c);
  check_padded<OnePart, 128>({.batch = 1, .heads = 2, .kv_heads = 2, .tq = 20, .tk = 70, .d = 100});
  check_padded<Halves, 32>({.batch = 1, .heads = 2, .kv_heads = 2, .tq = 90, .tk = 6, .d = 3});
}
// In stages that are filled while another is multiplied, and where one fits alone.
TEST_F(MmaAttention, Pairs) {
  const Case c{.batch = 2, .heads = 2, .kv_heads = 1, .tq = 140, .tk = 90, .d = 56, .causal = true, .offset = -30};
  check_pairs<Halves, 64>(c, true);
  check_pairs<OnePart, 64>(c, false);
  check_pairs<TwoParts, 64>(c, true);
  check_pairs<TwoParts, 64>(c, false);
  check_pairs<TwoParts, 128>({.batch = 3, .heads = 2, .kv_heads = 2, .tq = 30, .tk = 70, .d = 128, .seed = 1}, true);
}

}  // namespace
}  // namespace strata::attention_cuda
