// What attention has for each query and key, on tensor cores: weights, or the gradient of what is added to the scores,
// summed over all heads, batches, queries or keys of which the result has one. A block has a tile of the result and
// passes over what is summed in one order; nothing of [heads, queries, keys] is stored that the result does not have.
// A result of few tiles (a mask for all heads and batches) would leave most of the card idle: its sums are cut into
// parts, whose f32 results a second kernel adds up in their order. How many parts depends on the shapes alone, so the
// bits are the same on every card.

#include <algorithm>

#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/mma.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kRows = 16 * kWarps, kKeys = 64;
// Blocks that fill a card, tiles that are worth a part of their own, and bytes that the parts' results may take.
constexpr int64_t kBlocksWanted = 264, kLeastSums = 4, kMostPartBytes = 64 << 20;

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

__global__ void __launch_bounds__(256) add_parts_kernel(const __grid_constant__ Pairs p) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (at >= p.numel) return;
  float x = 0;
#pragma unroll 4
  for (int i = 0; i < p.parts; ++i) x += p.part_results[i * p.numel + at];
  put_result(p, at, x);
}

template <class M, int D>
__global__ void __launch_bounds__(kThreads, 1)
    pairs_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ Pairs pairs,
                 const float* const delta, const __grid_constant__ Options options) {
  using T = typename M::T;
  using Stored = typename M::Stored;
  constexpr int kBlocks = kKeys / 8;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Stored* const shared = reinterpret_cast<Stored*>(shared_bytes);
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
      const uint64_t rows = (static_cast<uint64_t>(b) * c.heads + h) * c.tq;
      const uint64_t number[2] = {(rows + mask_row[0]) * given.tk + k0, (rows + mask_row[1]) * given.tk + k0};
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

}  // namespace
}  // namespace strata::attention_cuda

namespace strata {

bool attention_pairs_cuda(const AttentionCall& c, const AttentionPairs& what, const Tensor& like_this) {
  using namespace attention_cuda;
  const bool singles = fits_mma_f32(c, what.gradient) && c.d <= 128;  // a stage of larger ones has no room
  if ((!singles && !fits_mma(c, what.gradient)) || what.dtype == DType::f64) return false;
  const int64_t full[4] = {c.batch, c.heads, c.tq, c.tk},
                tiles[4] = {c.batch, c.heads, (c.tq + kRows - 1) / kRows, (c.tk + kKeys - 1) / kKeys};
  Pairs p{};
  p.to = what.to, p.dtype = what.dtype;
  p.gradient = what.gradient, p.factor = static_cast<float>(what.factor);
  int64_t stride = 1, strides[4], blocks = 1, sums = 1;
  for (int i = 3; i >= 0; --i) {
    const bool all = what.shape[i] == full[i] && full[i] > 1;
    strides[i] = all ? stride : 0;
    if (all) stride *= full[i];
    p.blocks[i] = static_cast<int>(all ? tiles[i] : 1), p.sums[i] = static_cast<int>(all ? 1 : tiles[i]);
    blocks *= p.blocks[i], sums *= p.sums[i];
  }
  if (blocks >= INT32_MAX || sums >= INT32_MAX) return false;
  p.batch = strides[0], p.head = strides[1], p.query = strides[2], p.key = strides[3];
  p.numel = stride;
  const int64_t most = std::min({(kBlocksWanted + blocks - 1) / blocks, sums / kLeastSums,
                                 kMostPartBytes / (stride * static_cast<int64_t>(sizeof(float)))});
  const int64_t wanted = std::max<int64_t>(most, 1);
  p.part_sums = static_cast<int>(std::max<int64_t>((sums + wanted - 1) / wanted, 1));
  p.parts = static_cast<int>(std::max<int64_t>((sums + p.part_sums - 1) / p.part_sums, 1));  // of none: zeros
  Tensor bits, terms, part_results;
  if (p.parts > 1) {
    part_results = empty({Shape{p.parts, stride}, DType::f32, like_this.device(), std::nullopt});
    p.part_results = static_cast<float*>(part_results.raw_data());
  }
  const Options options = options_of(c, kRows, kKeys, false, like_this, bits);
  const float* delta = nullptr;
  if (what.gradient) {
    terms = row_terms(c, 1, like_this);
    delta = static_cast<const float*>(terms.raw_data());
  }
  const auto queue = [&]<class M, int D>() {
    const auto kernel = pairs_kernel<M, D>;
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<M, D>),
                     "scaled_dot_product_attention", "cudaFuncSetAttribute");
    const dim3 grid(cuda::blocks_for(blocks, 1), static_cast<unsigned>(p.parts));
    kernel<<<grid, kThreads, kSharedBytes<M, D>, cuda::stream()>>>(c, p, delta, options);
  };
  const auto with = [&]<class M>() {
    if (c.d <= 64) return queue.template operator()<M, 64>();
    if (c.d <= 128) return queue.template operator()<M, 128>();
    if constexpr (M::kPiece == 8) queue.template operator()<M, 256>();
  };
  if (singles) {
    cuda::allow_tf32() ? with.template operator()<Singles<1>>() : with.template operator()<Singles<2>>();
  } else {
    c.dtype == DType::bf16 ? with.template operator()<Sixteen<BFloat16>>() : with.template operator()<Sixteen<Half>>();
  }
  if (p.parts > 1) add_parts_kernel<<<cuda::blocks_for(stride, 256), 256, 0, cuda::stream()>>>(p);
  return true;
}

}  // namespace strata
