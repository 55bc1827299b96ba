#pragma once
// Attention of one query a text on a CUDA device. All heads that read the same keys are a block's, which reads them
// once; the places of a text are shared out to the blocks of a cluster, whose parts are joined in their order. Several
// lanes have a key: each multiplies a piece of it with the same pieces of all queries, and gets one key's score with
// one query when they add up.
//
// With kNew the query and the key of its own place come from the product that made them: they are turned where they are
// read, and the key and its value, which no block reads from the cache, are written there by one.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "strata/cuda/tile/cluster.cuh"
#include "strata/cuda/tile/shared_tile.cuh"
#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#endif

namespace strata::generation {

/// Where a tensor's rows lie, in elements: batch, head and place apart.
struct DecodeRows {
  const void* p;
  int64_t batch, head, time;
};
struct DecodeCall {
  DecodeRows q, k, v;  ///< q's rows have one place
  void* y;             ///< [batch, heads, dv], dense
  const int64_t* places;
  const float* sinks;  ///< or null
  int heads, kv_heads, group, d, dv, capacity, window;
  int parts;  ///< of a group that has more heads than a block takes
  float scale, soft_cap;
  // With kNew: q's heads are followed by those of keys and values, `head` apart; d is dv.
  const float *cos, *sin;  ///< [batch, pairs]; elements i and i + pairs turn together
  int pairs;               ///< a multiple of a piece's elements
  const int64_t* counts;   ///< or null: nothing is written for texts where it is 0
  void *k_to, *v_to;       ///< k's and v's memory
};

constexpr int kDecodeThreads = 128;

namespace decode {
using cuda::Vec;
using cuda::widen;

constexpr int kThreads = kDecodeThreads, kLane = 32, kWarps = kThreads / kLane;
constexpr int kKeys = 8;  // of a lane in a tile
constexpr float kLog2e = 1.4426950408889634f;

// Numbers of all lanes' parts of 16 bytes.
template <class T, int kV>
__device__ __forceinline__ Vec<float, kV> wide(const uint4& words) {
  Vec<T, kV> of;
  memcpy(static_cast<void*>(&of), &words, sizeof of);
  Vec<float, kV> r;
#pragma unroll
  for (int e = 0; e < kV; ++e) r.v[e] = widen(of.v[e]);
  return r;
}

// 16 bytes of the cache, or of what the kernel before wrote.
template <class T>
__device__ __forceinline__ uint4 piece(const T* p) {
  return *reinterpret_cast<const uint4*>(p);
}

// The piece of a row at `at` turned, rounded as a kernel of its own would store it.
template <class T, int kV>
__device__ __forceinline__ uint4 turned(const T* row, int at, const float* cos, const float* sin, int pairs) {
  const uint4 words = piece(row + at);
  if (at >= 2 * pairs) return words;
  const bool first = at < pairs;
  const Vec<float, kV> own = wide<T, kV>(words), other = wide<T, kV>(piece(row + (first ? at + pairs : at - pairs)));
  const int pair = first ? at : at - pairs;
  Vec<T, kV> to;
#pragma unroll
  for (int e = 0; e < kV; ++e) {
    const float c = cos[pair + e], s = sin[pair + e];
    to.v[e] = cuda::narrow<T>(first ? own.v[e] * c - other.v[e] * s : other.v[e] * s + own.v[e] * c);
  }
  uint4 r;
  memcpy(&r, &to, sizeof r);
  return r;
}

// Blocks that share a text's places; without clusters a block is alone.
struct Team {
  int ranks = 1, rank = 0;

  __device__ __forceinline__ Team() {
#ifdef STRATA_TILE_EMULATION
    const auto* const of = cuda::tile::emulation::block->cluster;
    if (of == nullptr) return;
    ranks = static_cast<int>(of->blocks.size());
    while (of->blocks[static_cast<size_t>(rank)] != cuda::tile::emulation::block) ++rank;
#elif __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(ranks));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  }
  __device__ __forceinline__ void sync() const {
#if defined(STRATA_TILE_EMULATION) || __CUDA_ARCH__ >= 900
    if (ranks > 1) return cuda::tile::cluster_sync();
#endif
    __syncthreads();
  }
  // What block `of` has at p.
  __device__ __forceinline__ float at(const float* p, int of) const {
#ifdef STRATA_TILE_EMULATION
    namespace emulation = cuda::tile::emulation;
    if (ranks > 1)
      return *reinterpret_cast<const float*>(emulation::block->peer(of, "a load").shared +
                                             (cuda::tile::shared_address(p) - emulation::kBase));
#elif __CUDA_ARCH__ >= 900
    if (ranks > 1) {
      float v;
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(cuda::tile::address_in(p, of)) : "memory");
      return v;
    }
#endif
    return *p;
  }
};

// What the kernel has in shared memory.
template <class T, int kLanes, int kHeads>
struct DecodeShared {
  static constexpr int kV = 16 / sizeof(T), kGroups = kThreads / kLanes, kTile = kGroups * kKeys;
  static constexpr int kWidth = kLanes * kV;  // numbers of a row, at most
  float weights[kTile][kHeads], tops[kWarps][kHeads], sums[kWarps][kHeads];
  float out[kHeads][kWidth], all_tops[kHeads], all_sums[kHeads];
  float parts[kGroups][kWidth];
};

// kLanes lanes have a key, kHeads of the group's queries are a block's. Scores and what is kept of them are in base 2.
template <class T, int kLanes, int kHeads, bool kNew>
__global__ void __launch_bounds__(kThreads) decode_kernel(const DecodeCall c) {
  using S = DecodeShared<T, kLanes, kHeads>;
  constexpr int kV = S::kV, kGroups = S::kGroups, kTile = S::kTile, kWidth = S::kWidth;
  constexpr int kAtOnce = kLanes / kHeads, kRounds = kKeys / kAtOnce;  // keys that one addition covers
  static_assert(kRounds >= 1);
  S& shared = *reinterpret_cast<S*>(cuda::tile::shared_memory());
  auto& weights = shared.weights;
  auto& tops = shared.tops;
  auto& sums = shared.sums;
  auto& out = shared.out;
  auto& all_tops = shared.all_tops;
  auto& all_sums = shared.all_sums;
  auto& parts = shared.parts;
  cuda::let_next_begin();
  const int x = static_cast<int>(threadIdx.x), lane = x % kLanes, group = x / kLanes, warp = x / kLane;
  const Team team;
  const int ranks = team.ranks, rank = team.rank;
  int at = static_cast<int>(blockIdx.x) / ranks;
  const int part = at % c.parts;
  at /= c.parts;
  const int kv_head = at % c.kv_heads, b = at / c.kv_heads;
  const int head0 = kv_head * c.group + part * kHeads, heads = min(kHeads, c.group - part * kHeads);
  const bool has_key = lane * kV < c.d, has_value = lane * kV < c.dv;
  cuda::wait_for_previous();

  const int64_t place = c.places[b];
  const int last = static_cast<int>(min(max(place, int64_t{0}), static_cast<int64_t>(c.capacity - 1)));
  const int first = c.window > 0 ? max(0, last - c.window + 1) : 0;
  // Whole tiles for every block of the cluster.
  const int tiles = (last - first + kTile) / kTile, each = (tiles + ranks - 1) / ranks;
  const int begin = first + rank * each * kTile, end = min(last + 1, begin + each * kTile);

  const T* const packed = static_cast<const T*>(c.q.p) + b * c.q.batch;
  const float *const cos = kNew ? c.cos + b * c.pairs : nullptr, *const sin = kNew ? c.sin + b * c.pairs : nullptr;
  Vec<float, kV> q[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    uint4 words{};
    if (has_key && h < heads) {
      const T* const row = packed + (head0 + h) * c.q.head;
      words = kNew ? turned<T, kV>(row, lane * kV, cos, sin, c.pairs) : piece(row + lane * kV);
    }
    q[h] = wide<T, kV>(words);
  }
  uint4 new_key{}, new_value{};
  if (kNew && has_key) {
    new_key = turned<T, kV>(packed + (c.heads + kv_head) * c.q.head, lane * kV, cos, sin, c.pairs);
    new_value = piece(packed + (c.heads + c.kv_heads + kv_head) * c.q.head + lane * kV);
    if (part == 0 && rank == 0 && group == 0 && place == last && (c.counts == nullptr || c.counts[b] > 0)) {
      const auto row = [&](void* of, const DecodeRows& rows) {
        return static_cast<T*>(of) + b * rows.batch + kv_head * rows.head + last * rows.time + lane * kV;
      };
      *reinterpret_cast<uint4*>(row(c.k_to, c.k)) = new_key;
      *reinterpret_cast<uint4*>(row(c.v_to, c.v)) = new_value;
    }
  }
  const T* const keys = static_cast<const T*>(c.k.p) + b * c.k.batch + kv_head * c.k.head + lane * kV;
  const T* const values = static_cast<const T*>(c.v.p) + b * c.v.batch + kv_head * c.v.head + lane * kV;

  constexpr float kLowest = std::numeric_limits<float>::lowest();
  float top[kHeads], acc[kHeads][kV] = {}, sum = 0;  // sum: of this lane's own head, lane % kHeads
#pragma unroll
  for (int h = 0; h < kHeads; ++h) top[h] = kLowest;
  for (int tile = begin; tile < end; tile += kTile) {
    // This group's keys are tile + group * kKeys and those after it.
    const int own = tile + group * kKeys;
    uint4 k_words[kKeys], v_words[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      k_words[i] = uint4{};
      if (has_key && own + i < end) k_words[i] = kNew && own + i == last ? new_key : piece(keys + (own + i) * c.k.time);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      v_words[i] = uint4{};
      if (has_value && own + i < end)
        v_words[i] = kNew && own + i == last ? new_value : piece(values + (own + i) * c.v.time);
    }
    // Lane l of the group ends with the score of key l / kHeads of a round and head l % kHeads.
    float scores[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      float partial[kLanes];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const Vec<float, kV> key = wide<T, kV>(k_words[r * kAtOnce + i]);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float dot = 0;
#pragma unroll
          for (int e = 0; e < kV; ++e) dot = fmaf(q[h].v[e], key.v[e], dot);
          partial[i * kHeads + h] = dot;
        }
      }
#pragma unroll
      for (int half = kLanes / 2; half > 0; half /= 2) {
        const bool upper = (lane & half) != 0;
#pragma unroll
        for (int j = 0; j < half; ++j) {
          const float give = upper ? partial[j] : partial[j + half], keep = upper ? partial[j + half] : partial[j];
          partial[j] = keep + __shfl_xor_sync(0xffffffffu, give, half);
        }
      }
      float score = partial[0] * c.scale;
      if (c.soft_cap > 0) score = c.soft_cap * tanhf(score / c.soft_cap);
      scores[r] = own + r * kAtOnce + lane / kHeads < end ? score * kLog2e : -INFINITY;
    }
    float most = scores[0];
#pragma unroll
    for (int r = 1; r < kRounds; ++r) most = fmaxf(most, scores[r]);
#pragma unroll
    for (int step = kHeads; step < kLane; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (x % kLane < kHeads) tops[warp][x % kHeads] = most;
    __syncthreads();
    float mine = 0, shrink = 1;  // of this lane's head
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float next = top[h];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) next = fmaxf(next, tops[w][h]);
      const float less = exp2f(top[h] - next);
      top[h] = next;
#pragma unroll
      for (int e = 0; e < kV; ++e) acc[h][e] *= less;
      if (lane % kHeads == h) mine = next, shrink = less;
    }
    sum *= shrink;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const float p = exp2f(scores[r] - mine);
      sum += p;
      weights[group * kKeys + r * kAtOnce + lane / kHeads][lane % kHeads] = p;
    }
    __syncwarp();  // a group's weights are read by the group alone
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const Vec<float, kV> value = wide<T, kV>(v_words[i]);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float p = weights[group * kKeys + i][h];
#pragma unroll
        for (int e = 0; e < kV; ++e) acc[h][e] = fmaf(p, value.v[e], acc[h][e]);
      }
    }
    __syncthreads();  // before tops are written again
  }

  // The block's sums.
#pragma unroll
  for (int step = kHeads; step < kLane; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (x % kLane < kHeads) sums[warp][x % kHeads] = sum;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kV; ++e) parts[group][lane * kV + e] = acc[h][e];
    __syncthreads();
    for (int j = x; j < kWidth; j += kThreads) {
      float total = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) total += parts[g][j];
      out[h][j] = total;
    }
    if (x == 0) {
      float total = 0;
      for (int w = 0; w < kWarps; ++w) total += sums[w][h];
      all_sums[h] = total;
      all_tops[h] = top[h];
    }
  }
  team.sync();
  // The cluster's: each block has some of the numbers.
  for (int j = rank * kThreads + x; j < heads * c.dv; j += ranks * kThreads) {
    const int h = j / c.dv, e = j % c.dv;
    const float sink = c.sinks != nullptr ? c.sinks[head0 + h] * kLog2e : kLowest;
    float most = sink, total = 0, number = 0;
    for (int r = 0; r < ranks; ++r) most = fmaxf(most, team.at(&all_tops[h], r));
    if (c.sinks != nullptr) total = exp2f(sink - most);
    for (int r = 0; r < ranks; ++r) {
      const float w = exp2f(team.at(&all_tops[h], r) - most);
      total += w * team.at(&all_sums[h], r);
      number += w * team.at(&out[h][e], r);
    }
    static_cast<T*>(c.y)[(static_cast<int64_t>(b) * c.heads + head0 + h) * c.dv + e] =
        cuda::narrow<T>(total > 0 ? number / total : 0.0f);
  }
  if (ranks > 1) team.sync();  // none ends whose memory another one reads
}

}  // namespace decode
}  // namespace strata::generation
