// Attention of one query a text on a CUDA device. All heads that read the same keys are a block's, which reads them
// once; the places of a text are shared out to the blocks of a cluster, whose parts are joined in their order. Several
// lanes have a key: each multiplies a piece of it with the same pieces of all queries, and gets one key's score with
// one query when they add up.

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/cluster.cuh"
#include "strata/ops/generation/decode_attention_cuda.h"

namespace strata::generation {
namespace {
using cuda::kVec;
using cuda::Vec;
using cuda::widen;

constexpr int kThreads = 128, kWarps = kThreads / cuda::kWarp;
constexpr int kKeys = 8;         // of a lane in a tile
constexpr int kMostBlocks = 8;   // of a cluster
constexpr int kLeastKeys = 128;  // places that are worth a block of their own
constexpr float kLog2e = 1.4426950408889634f;

struct Rows {
  const void* p;
  int64_t batch, head, time;
};
struct Call {
  Rows q, k, v;
  void* y;
  const int64_t* places;
  const float* sinks;  // or null
  int heads, kv_heads, group, d, dv, capacity, window;
  int parts;  // of a group that has more heads than a block takes
  float scale, soft_cap;
};

// Numbers of all lanes' parts of 16 bytes.
template <class T, int kV>
__device__ __forceinline__ Vec<float, kV> wide(const uint4& words) {
  Vec<T, kV> of;
  memcpy(&of, &words, sizeof of);
  Vec<float, kV> r;
#pragma unroll
  for (int e = 0; e < kV; ++e) r.v[e] = widen(of.v[e]);
  return r;
}

// Blocks that share a text's places; without clusters a block is alone.
struct Team {
  int ranks = 1, rank = 0;

  __device__ __forceinline__ Team() {
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(ranks));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  }
  __device__ __forceinline__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) return cuda::tile::cluster_sync();
#endif
    __syncthreads();
  }
  // What block `of` has at p.
  __device__ __forceinline__ float at(const float* p, int of) const {
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) {
      float v;
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(cuda::tile::address_in(p, of)) : "memory");
      return v;
    }
#endif
    return *p;
  }
};

// kLanes lanes have a key, kHeads of the group's queries are a block's. Scores and what is kept of them are in base 2.
template <class T, int kLanes, int kHeads>
__global__ void __launch_bounds__(kThreads) decode_kernel(const Call c) {
  constexpr int kV = kVec<T>, kGroups = kThreads / kLanes, kTile = kGroups * kKeys;
  constexpr int kAtOnce = kLanes / kHeads, kRounds = kKeys / kAtOnce;  // keys that one addition covers
  static_assert(kRounds >= 1);
  constexpr int kWidth = kLanes * kV;  // numbers of a row, at most
  __shared__ float weights[kTile][kHeads], tops[kWarps][kHeads], sums[kWarps][kHeads];
  __shared__ float out[kHeads][kWidth], all_tops[kHeads], all_sums[kHeads];
  __shared__ float parts[kGroups][kWidth];
  cuda::let_next_begin();
  const int x = static_cast<int>(threadIdx.x), lane = x % kLanes, group = x / kLanes, warp = x / cuda::kWarp;
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

  Vec<float, kV> q[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    uint4 words{};
    if (has_key && h < heads)
      words = *reinterpret_cast<const uint4*>(static_cast<const T*>(c.q.p) + b * c.q.batch + (head0 + h) * c.q.head +
                                              lane * kV);
    q[h] = wide<T, kV>(words);
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
      if (has_key && own + i < end) k_words[i] = *reinterpret_cast<const uint4*>(keys + (own + i) * c.k.time);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      v_words[i] = uint4{};
      if (has_value && own + i < end) v_words[i] = *reinterpret_cast<const uint4*>(values + (own + i) * c.v.time);
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
    for (int step = kHeads; step < cuda::kWarp; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (x % cuda::kWarp < kHeads) tops[warp][x % kHeads] = most;
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
  for (int step = kHeads; step < cuda::kWarp; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (x % cuda::kWarp < kHeads) sums[warp][x % kHeads] = sum;
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

template <class T, int kLanes, int kHeads>
void launch(Call c, int64_t batch) {
  c.parts = (c.group + kHeads - 1) / kHeads;
  const int64_t blocks = batch * c.kv_heads * c.parts;
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "cache_attention", "cudaGetDevice");
  const cuda::DeviceProperties& card = cuda::properties(device);
  // Enough blocks to keep the memory busy, none with too little to read.
  int ranks = 1;
  while (card.major >= 9 && ranks < kMostBlocks && blocks * ranks < 2 * card.multiprocessors &&
         c.capacity > ranks * kLeastKeys)
    ranks *= 2;
  cuda::launch_early(decode_kernel<T, kLanes, kHeads>, cuda::blocks_for(blocks * ranks, 1), kThreads, 0, ranks, c);
}

// Lanes have 16 bytes each; of heads as many as there are, but enough that an addition covers no more than kKeys keys.
template <class T>
void by_size(const Call& c, int64_t batch) {
  const int widest = std::max(c.d, c.dv) / kVec<T>;
  const auto heads = [&]<int kLanes>() {
    constexpr int kLeast = kLanes <= kKeys ? 1 : kLanes / kKeys;
    if constexpr (kLeast <= 1)
      if (c.group == 1) return launch<T, kLanes, 1>(c, batch);
    if constexpr (kLeast <= 2)
      if (c.group <= 2) return launch<T, kLanes, 2>(c, batch);
    if (c.group <= 4 || kLanes < 8) return launch<T, kLanes, 4>(c, batch);
    if constexpr (kLanes >= 8) launch<T, kLanes, 8>(c, batch);
  };
  if (widest <= 4) return heads.template operator()<4>();
  if (widest <= 8) return heads.template operator()<8>();
  if (widest <= 16) return heads.template operator()<16>();
  heads.template operator()<32>();
}

}  // namespace

bool decode_attention_cuda(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& places,
                           const DecodeOptions& o) {
  const bool floats = q.dtype() == DType::bf16 || q.dtype() == DType::f16 || q.dtype() == DType::f32;
  if (!floats || q.size(2) != 1 || y.numel() == 0 || k.size(2) >= INT32_MAX) return false;
  const int64_t per_piece = 16 / size_of(q.dtype());
  const auto fits = [&](const Tensor& t) {
    const Strides& s = t.strides();
    return t.size(3) % per_piece == 0 && t.size(3) > 0 && t.size(3) <= 32 * per_piece && s[3] == 1 &&
           s[0] % per_piece == 0 && s[1] % per_piece == 0 && (t.size(2) == 1 || s[2] % per_piece == 0) &&
           cuda::aligned16(t.raw_data());
  };
  if (!fits(q) || !fits(k) || !fits(v)) return false;
  const auto rows = [](const Tensor& t) { return Rows{t.raw_data(), t.strides()[0], t.strides()[1], t.strides()[2]}; };
  const Tensor at = places.contiguous(), sinks = o.sinks.defined() ? o.sinks.to(DType::f32).contiguous() : o.sinks;
  Call c{};
  c.q = rows(q), c.k = rows(k), c.v = rows(v);
  c.y = y.raw_data();
  c.places = static_cast<const int64_t*>(at.raw_data());
  c.sinks = sinks.defined() ? static_cast<const float*>(sinks.raw_data()) : nullptr;
  c.heads = static_cast<int>(q.size(1)), c.kv_heads = static_cast<int>(k.size(1)), c.group = c.heads / c.kv_heads;
  c.d = static_cast<int>(q.size(3)), c.dv = static_cast<int>(v.size(3));
  c.capacity = static_cast<int>(k.size(2)), c.window = static_cast<int>(o.window);
  c.scale = static_cast<float>(o.scale), c.soft_cap = static_cast<float>(o.soft_cap);
  dispatch_floats(q.dtype(), "cache_attention", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) by_size<T>(c, q.size(0));
  });
  return true;
}

}  // namespace strata::generation
