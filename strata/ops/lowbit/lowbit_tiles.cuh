#pragma once
// Products of up to 32 rows of x with low-bit matrices on tensor cores. A warp has rows of W, whose codes become exact
// numbers of x's dtype in registers; sums of a block of columns are multiplied by its scale in f32, so nothing is
// rounded but the result. Blocks of a cluster share the columns out, and add their sums in order.
//
// Which columns a step of mma takes is free, as long as W and x agree: a lane takes 16 bytes of codes of a row as they
// lie, and x is laid into shared memory in the order that follows from that.
//
// Codes come through a ring of each lane's own in shared memory, by copies that run on: loads into registers are waited
// for all together, the newest too, since they share the few counters that a warp has, so that a ring of registers is
// none. They are asked for before the kernels before this one have ended, since those do not write weights.

#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/matmul/fp8.h"
#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/cluster.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/single.cuh"
#endif

namespace strata::cuda {

struct LowbitProduct {
  PackedView w;
  const void *x, *bias;
  void* y;
  int m;
  int steps;        // of all columns
  int block_steps;  // that a scale is for
  int block_shift;  // by which they divide, where they are a power of two; else negative
};

namespace lowbit_tiles {

inline constexpr int kThreads = 128, kWarps = kThreads / 32;
inline constexpr int kTileRows = 16, kTileColumns = 8;  // of mma: rows of W, rows of x
inline constexpr int kTogether = 2;                     // steps whose codes are asked for together: a line of a row

// Columns that a lane has in a step, pieces of 16 bytes of x that they are, and columns of all four lanes of a row.
template <WeightCodes kKind>
inline constexpr int kOwn = kKind == WeightCodes::int4 ? 32 : 16;
template <WeightCodes kKind>
inline constexpr int kPieces = kOwn<kKind> / 8;
template <WeightCodes kKind>
inline constexpr int kStepColumns = 4 * kOwn<kKind>;

/// kTiles: of eight rows of x, of which kKept are in shared memory: 8, or 1 of a single row, which all lanes read.
/// More tiles are read from shared memory for each row of W: two parts share them.
template <WeightCodes kKind, int kTiles, int kKept>
struct Shape {
  static_assert(kKept == 8 || (kKept == 1 && kTiles == 1));
  static constexpr int kParts = kTiles > 1 ? 2 : 1;  // of 16 rows of W, a warp's
  static constexpr int kChunk = kTiles > 1 ? 4 : 8;  // steps of the ring, and of which x is there at a time
  static constexpr int kWarpRows = kParts * kTileRows, kBlockRows = kWarps * kWarpRows;
  static constexpr int kStepPieces = kTiles * kPieces<kKind>;               // of a lane
  static constexpr int kRing = kChunk * kParts * 2 * 32;                    // a warp's, in pieces of 16 bytes
  static constexpr int kScales = kChunk * kWarpRows, kEach = kScales / 32;  // a warp's in a chunk, and a lane's
  static constexpr size_t kRingBytes = size_t{16} * kWarps * kRing,
                          kScaleBytes = size_t{2} * kWarps * kScales * sizeof(float2),
                          kXBytes = size_t{2} * kChunk * kStepPieces * kKept * 4 * 16,
                          kSharedBytes = kRingBytes + kScaleBytes + kXBytes;
  static_assert(size_t{kTiles} * kTileColumns * kBlockRows * sizeof(float) <= kRingBytes, "sums go where codes were");
};

#ifdef STRATA_TILE_EMULATION
inline int cluster_blocks() {
  const auto* c = tile::emulation::block->cluster;
  return c == nullptr ? 1 : static_cast<int>(c->blocks.size());
}
inline int cluster_rank() {
  return static_cast<int>(blockIdx.x) % cluster_blocks();
}
inline void sync_cluster(int blocks) {
  blocks > 1 ? tile::cluster_sync() : __syncthreads();
}
inline float of_block(const float* p, int rank) {
  float v;
  std::memcpy(&v, tile::emulation::block->peer(rank, "a load").pointer(tile::shared_address(p), 4), 4);
  return v;
}
#else
__device__ __forceinline__ int cluster_blocks() {
  int n = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
#endif
  return n;
}
__device__ __forceinline__ int cluster_rank() {
  int n = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
#endif
  return n;
}
__device__ __forceinline__ void sync_cluster(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) return tile::cluster_sync();
#endif
  __syncthreads();
}
// What block `rank` of the cluster has where p is here.
__device__ __forceinline__ float of_block(const float* p, int rank) {
  float v = *p;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(tile::address_in(p, rank)) : "memory");
#endif
  return v;
}
#endif

// Two numbers of T side by side, less two others.
template <class T>
__device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b) {
#ifdef STRATA_TILE_EMULATION
  const float2 x = tile::unpack2<T>(a), y = tile::unpack2<T>(b);
  return tile::pack2<T>(x.x - y.x, x.y - y.y);
#else
  if constexpr (std::is_same_v<T, BFloat16>) {
    __nv_bfloat162 x, y;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    const __nv_bfloat162 r = __hsub2(x, y);
    memcpy(&a, &r, 4);
  } else {
    __half2 x, y;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    const __half2 r = __hsub2(x, y);
    memcpy(&a, &r, 4);
  }
  return a;
#endif
}
// Two numbers of e4m3 as two of f16, exactly.
__device__ __forceinline__ uint32_t halves_of(uint32_t two) {
#if !defined(STRATA_TILE_EMULATION) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(two)));
  return halves;
#else
  return tile::pack2<Half>(fp8_value(static_cast<uint8_t>(two), kE4m3),
                           fp8_value(static_cast<uint8_t>(two >> 8), kE4m3));
#endif
}
__device__ __forceinline__ float2 two_e4m3(uint32_t two) {
  return tile::unpack2<Half>(halves_of(two));
}

// a & mask | b, which would be two instructions with two constants in them.
template <uint32_t kMask = 0x000f000fu>
__device__ __forceinline__ uint32_t codes_on(uint32_t a, uint32_t b) {
#ifdef STRATA_TILE_EMULATION
  return (a & kMask) | b;
#else
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(kMask), "r"(b));
  return r;
#endif
}

// The numbers of a word of codes, in pairs, given what stands for its zero.
template <WeightCodes kKind, class T>
struct Numbers;
// Columns 4 i + 0, 1; 4 i + 2, 3; 16 + 4 i + 0, 1; 16 + 4 i + 2, 3 of word i.
template <class T>
struct Numbers<WeightCodes::int4, T> {
  static constexpr int kPairs = 4;
  // 128 + code is a number of bf16, 1024 + code one of f16, with the code in its lowest bits.
  static constexpr uint32_t kBase = (std::is_same_v<T, BFloat16> ? 0x4300u : 0x6400u) * 0x10001u;
  __device__ static uint32_t zero(bool given, uint32_t z) { return kBase | (given ? z : 8) * 0x10001u; }
  __device__ static __forceinline__ void of(uint32_t word, uint32_t zero, uint32_t (&v)[kPairs]) {
    const uint32_t turned = tile::permute_bytes(word, 0, 0x3120);
    v[0] = minus<T>(codes_on(turned, kBase), zero);
    v[1] = minus<T>(codes_on(turned >> 8, kBase), zero);
    v[2] = minus<T>(codes_on(turned >> 4, kBase), zero);
    v[3] = minus<T>(codes_on(turned >> 12, kBase), zero);
  }
};
// Columns 4 i + 0, 1; 4 i + 2, 3.
template <class T>
struct Numbers<WeightCodes::int8, T> {
  static constexpr int kPairs = 2;
  __device__ static uint32_t zero(bool, uint32_t z) {
    return __float_as_uint(8388608.0f + 128.0f + static_cast<float>(static_cast<int8_t>(z)));
  }
  __device__ static __forceinline__ void of(uint32_t word, uint32_t zero, uint32_t (&v)[kPairs]) {
    const uint32_t u = word ^ 0x80808080u;  // code + 128, behind 2^23 a number of f32
    const auto number = [&](uint32_t i) {
      return __uint_as_float(tile::permute_bytes(u, 0x4b000000u, 0x7440u | i)) - __uint_as_float(zero);
    };
    v[0] = tile::pack2<T>(number(0), number(1));
    v[1] = tile::pack2<T>(number(2), number(3));
  }
};
template <class T>
struct Numbers<WeightCodes::e4m3, T> {
  static constexpr int kPairs = 2;
  __device__ static uint32_t zero(bool, uint32_t) { return 0; }
  __device__ static __forceinline__ void of(uint32_t word, uint32_t, uint32_t (&v)[kPairs]) {
    const float2 a = two_e4m3(word & 0xffffu), b = two_e4m3(word >> 16);
    v[0] = tile::pack2<T>(a.x, a.y);
    v[1] = tile::pack2<T>(b.x, b.y);
  }
};

__device__ __forceinline__ float number_of(DType t, uint32_t bits) {
  if (t == DType::f32) return __uint_as_float(bits);
  return t == DType::f16 ? tile::unpack2<Half>(bits).x : tile::unpack2<BFloat16>(bits).x;
}

}  // namespace lowbit_tiles

template <WeightCodes kKind, class T, int kTiles, int kKept>
__global__ void __launch_bounds__(lowbit_tiles::kThreads) lowbit_tiles_kernel(const LowbitProduct p) {
  using namespace lowbit_tiles;
  using S = Shape<kKind, kTiles, kKept>;
  using N = Numbers<kKind, T>;
  constexpr int kParts = S::kParts, kChunk = S::kChunk, kPlaces = kChunk / kTogether;
  constexpr int kRowPieces = kChunk * 4 * kPieces<kKind>;  // of one row of x in a chunk
  constexpr int kXLanes = 4 * kKept;
  constexpr int kChains = kTiles == 1 ? 2 : 1;  // of sums, so that a step does not wait for all of its products in turn
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int ranks = cluster_blocks(), rank = cluster_rank();
  const PackedView& w = p.w;
  const int64_t first = static_cast<int64_t>(blockIdx.x / static_cast<unsigned>(ranks)) * S::kBlockRows;
  const int all_places = (p.steps + kTogether - 1) / kTogether, each = (all_places + ranks - 1) / ranks;
  const int begin = min(rank * each, all_places) * kTogether, end = min(p.steps, begin + each * kTogether);

  uint8_t* const memory = tile::shared_memory();
  const uint4* const ring = reinterpret_cast<const uint4*>(memory) + warp * S::kRing + lane;
  float2* const scales = reinterpret_cast<float2*>(memory + S::kRingBytes) + warp * S::kScales;  // and for odd chunks
  const uint4* const x_there = reinterpret_cast<const uint4*>(memory + S::kRingBytes + S::kScaleBytes);

  // A lane's rows of W: lane / 4 and 8 more of each 16; what is behind the last is computed with the last.
  const auto row_of = [&](int row) { return min(first + warp * S::kWarpRows + row, w.rows - 1); };
  const uint8_t* codes[kParts][2];
#pragma unroll
  for (int a = 0; a < kParts; ++a)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      codes[a][h] = w.codes + row_of(a * kTileRows + h * 8 + lane / 4) * w.row_bytes + lane % 4 * 16;
  int asked = begin;
  const auto ask = [&](int place) {
#pragma unroll
    for (int s = 0; s < kTogether; ++s, ++asked)
#pragma unroll
      for (int a = 0; a < kParts; ++a)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          if (asked < end)
            tile::copy_async(tile::shared_address(ring + (((place * kTogether + s) * kParts + a) * 2 + h) * 32),
                             codes[a][h] + static_cast<int64_t>(asked) * 64);
  };
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) ask(i);

  // Scales of a chunk on their way: a lane's are of one row.
  const int scale_row = lane % S::kWarpRows, scale_step = lane / S::kWarpRows;
  const int64_t scale_block = w.block_rows == 1 ? row_of(scale_row) : row_of(scale_row) / w.block_rows,
                scale_at = scale_block * w.grid_columns;
  const bool wide = w.scale_dtype == DType::f32;
  uint32_t scale_bits[S::kEach], zero_bits[S::kEach];
  const auto load_scales = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < S::kEach; ++i) {
      const int step = min(chunk + scale_step + i * (32 / S::kWarpRows), p.steps - 1);
      const int64_t at = scale_at + (p.block_shift >= 0 ? step >> p.block_shift : step / p.block_steps);
      scale_bits[i] = wide ? static_cast<const uint32_t*>(w.scales)[at] : static_cast<const uint16_t*>(w.scales)[at];
      zero_bits[i] = w.zeros == nullptr ? 0 : w.zeros[at];
    }
  };
  const auto store_scales = [&](int odd) {
#pragma unroll
    for (int i = 0; i < S::kEach; ++i)
      scales[odd * kWarps * S::kScales + i * 32 + lane] = {number_of(w.scale_dtype, scale_bits[i]),
                                                           __uint_as_float(N::zero(w.zeros != nullptr, zero_bits[i]))};
  };
  load_scales(begin);
  wait_for_previous();

  // Where a chunk's x goes: piece j of the lane that has row g of its tile and place t. Rows that there are not are
  // whatever is there: their sums are no one's.
  const auto lay = [&](int chunk, int odd) {
    for (int i = thread; i < kTiles * kKept * kRowPieces; i += kThreads) {
      const int row = i / kRowPieces, piece = i % kRowPieces;
      const int step = piece / (4 * kPieces<kKind>), t = piece / kPieces<kKind> % 4, j = piece % kPieces<kKind>;
      if (row >= p.m || chunk + step >= end) continue;
      const int tile_at = (odd * kChunk + step) * S::kStepPieces + row / kTileColumns * kPieces<kKind> + j;
      tile::copy_async(
          tile::shared_address(x_there + tile_at * kXLanes + row % kTileColumns * 4 + t),
          static_cast<const T*>(p.x) + row * w.columns + static_cast<int64_t>(chunk) * kStepColumns<kKind> + piece * 8);
    }
  };

  float sums[kParts][kTiles][4] = {};
  lay(begin, 0);
  tile::commit_copies();
  int odd = 0;
  for (int chunk = begin; chunk < end; chunk += kChunk, odd ^= 1) {
    if (chunk == begin)
      tile::wait_copies<0>();
    else
      tile::wait_copies<kPlaces - 1>();
    store_scales(odd);
    __syncthreads();  // x and scales are there, and those of the chunk before are not read any more
    if (chunk + kChunk < end) {
      load_scales(chunk + kChunk);
      lay(chunk + kChunk, odd ^ 1);  // with the codes of the next chunk's first place
    }
    const uint4* const x_of_chunk = x_there + odd * kChunk * S::kStepPieces * kXLanes + lane % kXLanes;
    const float2* const scales_of_chunk = scales + odd * kWarps * S::kScales + lane / 4;
#pragma unroll
    for (int s = 0; s < kChunk; ++s) {
      if (chunk + s >= end) break;  // the same for all
      if (s > 0 && s % kTogether == 0) tile::wait_copies<kPlaces - 1>();
      uint32_t x[kTiles][kPieces<kKind> * 4];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int j = 0; j < kPieces<kKind>; ++j) {
          const uint4 v = x_of_chunk[(s * S::kStepPieces + n * kPieces<kKind> + j) * kXLanes];
          x[n][4 * j] = v.x, x[n][4 * j + 1] = v.y, x[n][4 * j + 2] = v.z, x[n][4 * j + 3] = v.w;
        }
#pragma unroll
      for (int a = 0; a < kParts; ++a) {
        const uint4 low = ring[((s * kParts + a) * 2) * 32], high = ring[((s * kParts + a) * 2 + 1) * 32];
        const uint32_t low_words[4] = {low.x, low.y, low.z, low.w}, high_words[4] = {high.x, high.y, high.z, high.w};
        const float2 low_scale = scales_of_chunk[s * S::kWarpRows + a * kTileRows],
                     high_scale = scales_of_chunk[s * S::kWarpRows + a * kTileRows + 8];
        float part[kTiles][kChains][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t l[N::kPairs], h[N::kPairs];
          N::of(low_words[i], __float_as_uint(low_scale.y), l);
          N::of(high_words[i], __float_as_uint(high_scale.y), h);
          // x[k] holds columns 2 k and 2 k + 1 of this lane's.
#pragma unroll
          for (int k = 0; k < N::kPairs; k += 2) {
            const uint32_t pairs[4] = {l[k], h[k], l[k + 1], h[k + 1]};
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
              tile::mma<T>(part[n][(i + k / 2) % kChains], pairs, x[n][4 * k + 2 * i], x[n][4 * k + 2 * i + 1]);
          }
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float v = part[n][0][e];
            if constexpr (kChains > 1) v += part[n][1][e];
            sums[a][n][e] += (e < 2 ? low_scale.x : high_scale.x) * v;
          }
      }
      if (s % kTogether == kTogether - 1) {
        ask(s / kTogether);
        tile::commit_copies();
      }
    }
  }
  tile::wait_copies<0>();
  __syncthreads();  // before the rings are written over

  // [row of x][row of W]
  float* const all = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int a = 0; a < kParts; ++a)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        all[(n * kTileColumns + lane % 4 * 2 + e % 2) * S::kBlockRows + (warp * kParts + a) * kTileRows + e / 2 * 8 +
            lane / 4] = sums[a][n][e];
  sync_cluster(ranks);
  for (int i = rank * kThreads + thread; i < p.m * S::kBlockRows; i += ranks * kThreads) {
    const int64_t row = first + i % S::kBlockRows;
    if (row >= w.rows) continue;
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += ranks > 1 ? of_block(all + i, r) : all[i];
    if (p.bias != nullptr) sum += widen(static_cast<const T*>(p.bias)[row]);
    static_cast<T*>(p.y)[i / S::kBlockRows * w.rows + row] = narrow<T>(sum);
  }
  if (ranks > 1) sync_cluster(ranks);  // none ends whose memory another one reads
}

}  // namespace strata::cuda
