#pragma once
// What attention has for each query and key, on tensor cores: weights, or the gradient of what is added to the scores,
// summed over all heads, batches, queries or keys of which the result has one. A block has a tile of the result and
// passes over what is summed in one order; nothing of [heads, queries, keys] is stored that the result does not have.
// A result of few tiles (a mask for all heads and batches) would leave most of the card idle: its sums are cut into
// parts, whose f32 results a second kernel adds up in their order. How many parts depends on the shapes alone, so the
// bits are the same on every card.

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/mma.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace mma_pairs {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kRows = 16 * kWarps, kKeys = 64;

template <class M, int D>
inline constexpr int kPitch = M::template Shape<D>::kPitch;
template <class M, int D>
inline constexpr int kStageElements = 2 * (kRows + kKeys) * kPitch<M, D>;
// One is filled while the other is multiplied, where two fit.
template <class M, int D>
inline constexpr int kStages = D * sizeof(typename M::Stored) <= 256 ? 2 : 1;
template <class M, int D>
inline constexpr int kSharedBytes = kStages<M, D>* kStageElements<M, D>* static_cast<int>(sizeof(typename M::Stored));

struct Pairs {
  void* to;
  DType dtype;
  int64_t batch, head, query, key;  // strides; 0 where the result has one for all
  bool gradient;
  float factor;  // of the sum
  // Blocks of the result and what each sums up, along batches, heads, tiles of queries and of keys.
  int blocks[4], sums[4];
  // Where the sum is cut: parts, tiles in each, and their results [parts, numel]. One part writes to `to`.
  int parts, part_sums;
  float* part_results;
  int64_t numel;
};

// The result at (query, key) of a head.
__device__ __forceinline__ void put_result(const Pairs& p, int64_t at, float x) {
  x *= p.factor;
  if (p.dtype == DType::f32) {
    static_cast<float*>(p.to)[at] = x;
  } else if (p.dtype == DType::bf16) {
    static_cast<BFloat16*>(p.to)[at] = cuda::narrow<BFloat16>(x);
  } else {
    static_cast<Half*>(p.to)[at] = cuda::narrow<Half>(x);
  }
}

__device__ __forceinline__ void put(const Pairs& p, int64_t at, float x) {
  p.parts == 1 ? put_result(p, at, x) : void(p.part_results[blockIdx.y * p.numel + at] = x);
}

template <class M, int D>
__global__ void __launch_bounds__(kThreads, 1)
    pairs_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ Pairs pairs,
                 const float* const delta, const __grid_constant__ Options options) {
  using T = typename M::T;
  using Stored = typename M::Stored;
  constexpr int kBlocks = kKeys / 8;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(128) uint8_t memory[];
#endif
  Stored* const shared = reinterpret_cast<Stored*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, size = static_cast<int>(given.d);
  AttentionCall c = given;
  int64_t block = blockIdx.x;
  int first[4], n = 1;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    first[i] = static_cast<int>(block % pairs.blocks[i]), block /= pairs.blocks[i];
    n *= pairs.sums[i];
  }
  const RngKey key = resolved(c.key);
  const int64_t group = c.heads / c.kv_heads;

  const int from = static_cast<int>(blockIdx.y) * pairs.part_sums;
  n = min(n, from + pairs.part_sums);

  // What a step multiplies.
  struct Tile {
    int b, h, qt, kt;
  };
  // The first tile from `it` on that is seen at all, n where there is none; `c` has the length of its sequence then.
  const auto find = [&](int it, Tile& tile) {
    for (; it < n; ++it) {
      int rest = it;
      tile.kt = first[3] + rest % pairs.sums[3];
      rest /= pairs.sums[3];
      tile.qt = first[2] + rest % pairs.sums[2];
      rest /= pairs.sums[2];
      tile.h = first[1] + rest % pairs.sums[1], tile.b = first[0] + rest / pairs.sums[1];
      const int64_t q0 = static_cast<int64_t>(tile.qt) * kRows, k0 = static_cast<int64_t>(tile.kt) * kKeys;
      take_length(c, tile.b);
      int64_t begin, end;
      visible_keys(c, q0, min(q0 + kRows, c.tq), begin, end);
      if (k0 >= end || k0 + kKeys <= begin) continue;
      if (options.tiles == nullptr ||
          (options.tiles_of(tile.b, tile.h, tile.qt)[tile.kt / 32] >> (tile.kt % 32) & 1) != 0)
        break;
    }
    return it;
  };
  // Queries, gradients, keys and values of a stage.
  const auto part = [&](int stage, int rows) { return shared + stage * kStageElements<M, D> + rows * kPitch<M, D>; };
  const auto load = [&](const Tile& tile, int stage) {
    const int64_t b = tile.b, h = tile.h, hk = h / group, q0 = static_cast<int64_t>(tile.qt) * kRows,
                  k0 = static_cast<int64_t>(tile.kt) * kKeys;
    copy_tile<M, kRows, D, kThreads>(part(stage, 0), head_of<const T>(c.q, b, h), c.q.time, q0, c.tq, size);
    copy_tile<M, kKeys, D, kThreads>(part(stage, 2 * kRows), head_of<const T>(c.k, b, hk), c.k.time, k0, c.tk, size);
    if (!pairs.gradient) return;
    copy_tile<M, kRows, D, kThreads>(part(stage, kRows), head_of<const T>(c.grad_out, b, h), c.grad_out.time, q0, c.tq,
                                     size);
    copy_tile<M, kKeys, D, kThreads>(part(stage, 2 * kRows + kKeys), head_of<const T>(c.v, b, hk), c.v.time, k0, c.tk,
                                     size);
  };

  float sum[kBlocks][4] = {};
  Tile next;
  int it = find(from, next), stage = 0;
  if (kStages < M, D >> 1 && it < n) load(next, 0);
  commit_copies();
  while (it < n) {
    const Tile tile = next;
    if (kStages<M, D> == 1) take_length(c, tile.b), load(tile, 0);
    it = find(it + 1, next);
    if (kStages < M, D >> 1 && it < n) load(next, stage ^ 1);
    commit_copies();
    const int64_t b = tile.b, h = tile.h, q0 = static_cast<int64_t>(tile.qt) * kRows,
                  k0 = static_cast<int64_t>(tile.kt) * kKeys;
    take_length(c, b);
    const Stored *const qs = part(stage, 0), *const gs = part(stage, kRows), *const ks = part(stage, 2 * kRows),
                        *const vs = part(stage, 2 * kRows + kKeys);
    if (kStages < M, D >> 1) stage ^= 1;

    const int64_t row = q0 + 16 * warp + lane / 4;  // and row + 8
    const Seen seen[2] = {seen_keys(c, row), seen_keys(c, row + 8)};
    const int mask_row[2] = {static_cast<int>(min(row, c.tq - 1)), static_cast<int>(min(row + 8, c.tq - 1))};
    float lse[2], row_delta[2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = (b * c.heads + h) * c.tq + mask_row[r];
      const float x = static_cast<const float*>(c.lse)[at];
      lse[r] = x == -INFINITY || row + 8 * r >= c.tq ? INFINITY : x * options.per_lse;
      if (pairs.gradient) row_delta[r] = delta[at];
    }
    wait_copies<kStages<M, D> - 1>();
    __syncthreads();

    float s[kBlocks][4] = {}, dp[kBlocks][4] = {};
    if constexpr (M::kExact) {
      add_exact_scores<M, D, kKeys>(s, qs, 16 * warp, ks);
      if (pairs.gradient) add_exact_scores<M, D, kKeys>(dp, gs, 16 * warp, vs);
    } else {
#pragma unroll
      for (int d = 0; d < D / M::kDepth; ++d) {
        typename M::A a;
        typename M::B bx;
        M::template load_a<D>(a, qs, 16 * warp, d);
#pragma unroll
        for (int j = 0; j < kKeys; j += 16) {
          M::template load_b_rows<D>(bx, ks, j, d);
          M::multiply(s[j / 8], s[j / 8 + 1], a, bx);
        }
        if (!pairs.gradient) continue;
        M::template load_a<D>(a, gs, 16 * warp, d);
#pragma unroll
        for (int j = 0; j < kKeys; j += 16) {
          M::template load_b_rows<D>(bx, vs, j, d);
          M::multiply(dp[j / 8], dp[j / 8 + 1], a, bx);
        }
      }
    }
    float(&flat)[4 * kBlocks] = reinterpret_cast<float(&)[4 * kBlocks]>(s);
    if (options.cap_in != 0) soft_cap<M::kExact>(flat, options.cap_in);
    mask_scores<kBlocks>(flat, c, options, b, h, false, mask_row, static_cast<int>(k0),
                         row + c.offset - k0 - 2 * (lane % 4));
    KeptBits<kBlocks> kept;
    if (options.drop_below != 0) {
      const uint64_t number[2] = {c.numbers.of(b, h, mask_row[0], k0), c.numbers.of(b, h, mask_row[1], k0)};
      kept.draw(options, key, number, options.fours);
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = static_cast<int>(k0) + 8 * j + 2 * (lane % 4) + e % 2;
        float p = fast_exp2((s[j][e] - lse[e / 2]) * options.factor);
        if (at < seen[e / 2].first || at > seen[e / 2].last) p = 0;
        const float multiplier = options.drop_below == 0 ? 1.f : kept[4 * j + e] ? options.kept_scale : 0.f;
        sum[j][e] += pairs.gradient ? p * (dp[j][e] * multiplier - row_delta[e / 2]) : p * multiplier;
      }
    __syncthreads();  // all have read the stage that is filled next
  }

  // What is summed over all queries or keys lies in several lanes, and over queries in several warps.
  const int64_t head = first[0] * pairs.batch + first[1] * pairs.head;
  const bool one_query = pairs.query == 0, one_key = pairs.key == 0;
  if (one_key) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float x = 0;
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) x += sum[j][2 * r] + sum[j][2 * r + 1];
      x += __shfl_xor_sync(0xffffffffu, x, 1);
      sum[0][2 * r] = x + __shfl_xor_sync(0xffffffffu, x, 2);
    }
  }
  if (one_query) {
    float(*const parts)[kKeys] = reinterpret_cast<float(*)[kKeys]>(shared);  // of each warp
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x = sum[j][e] + sum[j][2 + e];
#pragma unroll
        for (int s = 4; s < 32; s *= 2) x += __shfl_xor_sync(0xffffffffu, x, s);
        if (lane < 4) parts[warp][8 * j + 2 * lane + e] = x;
      }
    __syncthreads();
    const int64_t column = static_cast<int64_t>(first[3]) * kKeys + threadIdx.x;
    if (threadIdx.x < (one_key ? 1 : kKeys) && (one_key || column < given.tk)) {
      float x = 0;
      for (int w = 0; w < kWarps; ++w) x += parts[w][threadIdx.x];
      put(pairs, head + (one_key ? 0 : column * pairs.key), x);
    }
    return;
  }
  const int64_t row = static_cast<int64_t>(first[2]) * kRows + 16 * warp + lane / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= given.tq) continue;
    const int64_t to = head + (row + 8 * r) * pairs.query;
    if (one_key) {
      if (lane % 4 == 0) put(pairs, to, sum[0][2 * r]);
      continue;
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t column = static_cast<int64_t>(first[3]) * kKeys + 8 * j + 2 * (lane % 4) + e;
        if (column < given.tk) put(pairs, to + column * pairs.key, sum[j][2 * r + e]);
      }
  }
}

}  // namespace mma_pairs
}  // namespace strata::attention_cuda
