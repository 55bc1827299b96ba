// Products of up to 32 rows of x with low-bit matrices on tensor cores. A warp has rows of W, whose codes become exact
// numbers of x's dtype in registers; sums of a block of columns are multiplied by its scale in f32, so nothing is
// rounded but the result. Blocks of a cluster share the columns out, and add their sums in order.
//
// Which columns a step of mma takes is free, as long as W and x agree: a lane takes 16 bytes of codes of a row as they
// lie, and x is laid into shared memory in the order that follows from that.

#include <algorithm>
#include <cstdint>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/cluster.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/lowbit/lowbit_tiles_kernel.h"
#include "strata/ops/matmul/fp8.h"

namespace strata {
namespace {
using cuda::tile::pack2;

constexpr int kThreads = 128, kWarps = kThreads / cuda::kWarp;
constexpr int kChunk = 4;       // steps whose x is in shared memory at a time; as many loads of codes are on their way
constexpr int kMostBlocks = 8;  // of a cluster
constexpr int kLeastSteps = kChunk;              // of a block
constexpr int kTileRows = 16, kTileColumns = 8;  // of mma: rows of W, rows of x

struct Product {
  PackedView w;
  const void *x, *bias;
  void* y;
  int m;
  int steps;        // of all columns
  int block_steps;  // that a scale is for
};

// Columns that a lane has in a step, pieces of 16 bytes of x that they are, and columns of all four lanes of a row.
template <WeightCodes kKind>
inline constexpr int kOwn = kKind == WeightCodes::int4 ? 32 : 16;
template <WeightCodes kKind>
inline constexpr int kPieces = kOwn<kKind> / 8;
template <WeightCodes kKind>
inline constexpr int kStepColumns = 4 * kOwn<kKind>;

// A scale as it lies, and its zero, on their way.
struct Block {
  uint32_t scale, zero;
};
__device__ __forceinline__ Block load_block(const PackedView& w, int64_t at) {
  Block b;
  b.scale = w.scale_dtype == DType::f32 ? static_cast<const uint32_t*>(w.scales)[at]
                                        : static_cast<const uint16_t*>(w.scales)[at];
  b.zero = w.zeros == nullptr ? 0 : w.zeros[at];
  return b;
}
__device__ __forceinline__ float scale_of(const PackedView& w, uint32_t bits) {
  if (w.scale_dtype == DType::f32) return __uint_as_float(bits);
  if (w.scale_dtype == DType::f16) return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  return __uint_as_float(bits << 16);
}

// Two numbers of T side by side, less two others.
template <class T>
__device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b) {
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
}
__device__ __forceinline__ float2 two_e4m3(uint32_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(two)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
#else
  return {fp8_value(static_cast<uint8_t>(two), kE4m3), fp8_value(static_cast<uint8_t>(two >> 8), kE4m3)};
#endif
}

// The numbers of a word of codes, in pairs: pairs 2 i and 2 i + 1 meet the same pieces of x's order, see lay().
template <WeightCodes kKind, class T>
struct Numbers;
// Columns 4 i + 0, 1; 16 + 4 i + 0, 1; 4 i + 2, 3; 16 + 4 i + 2, 3 of word i.
template <class T>
struct Numbers<WeightCodes::int4, T> {
  static constexpr int kPairs = 4;
  uint32_t zeros;
  __device__ explicit Numbers(const PackedView& w, uint32_t zero) {
    // 128 + code is a number of bf16, 1024 + code one of f16, with the code in its lowest bits.
    const uint32_t z = w.zeros == nullptr ? 8 : zero;
    zeros = (kBase | z) * 0x10001u;
  }
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const uint32_t turned = __byte_perm(word, 0, 0x3120);
    v[0] = minus<T>((turned & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[1] = minus<T>((turned >> 4 & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[2] = minus<T>((turned >> 8 & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[3] = minus<T>((turned >> 12 & 0x000f000fu) | kBase * 0x10001u, zeros);
  }
  static constexpr uint32_t kBase = std::is_same_v<T, BFloat16> ? 0x4300u : 0x6400u;
};
// Columns 4 i + 0, 1; 4 i + 2, 3.
template <class T>
struct Numbers<WeightCodes::int8, T> {
  static constexpr int kPairs = 2;
  float zero;
  __device__ explicit Numbers(const PackedView&, uint32_t z)
      : zero(8388608.0f + 128.0f + static_cast<float>(static_cast<int8_t>(z))) {}
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const uint32_t u = word ^ 0x80808080u;  // code + 128, behind 2^23 a number of f32
    const auto number = [&](uint32_t i) { return __uint_as_float(__byte_perm(u, 0x4b000000u, 0x7440u | i)) - zero; };
    v[0] = pack2<T>(number(0), number(1));
    v[1] = pack2<T>(number(2), number(3));
  }
};
template <class T>
struct Numbers<WeightCodes::e4m3, T> {
  static constexpr int kPairs = 2;
  __device__ explicit Numbers(const PackedView&, uint32_t) {}
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const float2 a = two_e4m3(word & 0xffffu), b = two_e4m3(word >> 16);
    v[0] = pack2<T>(a.x, a.y);
    v[1] = pack2<T>(b.x, b.y);
  }
};

// kTiles: of eight rows of x. kParts: of 16 rows of W, a warp's.
template <WeightCodes kKind, class T, int kTiles, int kParts>
__global__ void __launch_bounds__(kThreads) tiles_kernel(const Product p) {
  constexpr int kBlockRows = kWarps * kParts * kTileRows, kRows = kTiles * kTileColumns;
  constexpr int kStepPieces = kTiles * kPieces<kKind>;  // of a lane
  using N = Numbers<kKind, T>;
  extern __shared__ uint4 shared[];  // x of two chunks, [2][kChunk][kStepPieces][32]; then the block's sums
  cuda::let_next_begin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  int ranks = 1, rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(ranks));
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  const PackedView& w = p.w;
  const int64_t first = static_cast<int64_t>(blockIdx.x / static_cast<unsigned>(ranks)) * kBlockRows;
  const int chunks = (p.steps + kChunk - 1) / kChunk, each = (chunks + ranks - 1) / ranks;
  const int begin = min(rank * each, chunks) * kChunk, end = min(p.steps, begin + each * kChunk);

  // A lane's rows of W: lane / 4 and 8 more of each 16; what is behind the last is computed with the last.
  const uint4* codes[kParts][2];
  int64_t blocks[kParts][2];
#pragma unroll
  for (int a = 0; a < kParts; ++a)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = min(first + (warp * kParts + a) * kTileRows + h * 8 + lane / 4, w.rows - 1);
      codes[a][h] = reinterpret_cast<const uint4*>(w.codes + row * w.row_bytes) + lane % 4;
      blocks[a][h] = row / w.block_rows * w.grid_columns;
    }
  if (begin < end)
#pragma unroll
    for (int a = 0; a < kParts; ++a)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // 64 bytes of a row a step: two steps to a line, two lines to each lane of a row, in all eight steps.
        const int at = begin + 2 * (lane % 4);
        if (at < end) cuda::fetch_line(codes[a][h] - lane % 4 + 4 * at);
      }
  cuda::wait_for_previous();

  // Where a chunk's x goes: piece j of the lane that has column tile row g and place t.
  const auto lay = [&](int chunk_first, int buffer) {
    constexpr int kRowPieces = kChunk * 4 * kPieces<kKind>;  // of one row of x in a chunk
    for (int i = thread; i < kRows * kRowPieces; i += kThreads) {
      const int row = i / kRowPieces, piece = i % kRowPieces;
      const int step = piece / (4 * kPieces<kKind>), t = piece / kPieces<kKind> % 4, j = piece % kPieces<kKind>;
      const bool there = row < p.m && chunk_first + step < end;
      const int64_t column = static_cast<int64_t>(chunk_first) * kStepColumns<kKind> + piece * 8;
      const T* const from = static_cast<const T*>(p.x) + (there ? row * w.columns + column : 0);
      const int to = ((buffer * kChunk + step) * kStepPieces + row / kTileColumns * kPieces<kKind> + j) * cuda::kWarp +
                     row % kTileColumns * 4 + t;
      cuda::tile::copy_async(cuda::tile::shared_address(shared + to), from, there);
    }
    cuda::tile::commit_copies();
  };

  uint4 words[kChunk][kParts][2];
  Block scales[kChunk][kParts][2];
  int group = begin / p.block_steps, left = p.block_steps - begin % p.block_steps;  // of the step that is loaded next
  const auto load = [&](int step, int slot) {
    if (step >= end) return;
#pragma unroll
    for (int a = 0; a < kParts; ++a)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[slot][a][h] = __ldcs(codes[a][h] + 4 * static_cast<int64_t>(step));
        scales[slot][a][h] = load_block(w, blocks[a][h] + group);
      }
    if (--left == 0) left = p.block_steps, ++group;
  };

  float sums[kParts][kTiles][4] = {};
#pragma unroll
  for (int s = 0; s < kChunk; ++s) load(begin + s, s);
  if (begin < end) lay(begin, 0);
  int buffer = 0;
  for (int chunk = begin; chunk < end; chunk += kChunk, buffer ^= 1) {
    const bool more = chunk + kChunk < end;
    if (more) {
      lay(chunk + kChunk, buffer ^ 1);
      cuda::tile::wait_copies<1>();
    } else {
      cuda::tile::wait_copies<0>();
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kChunk; ++s) {
      if (chunk + s >= end) break;  // the same for all
      const uint4* const from = shared + (buffer * kChunk + s) * kStepPieces * cuda::kWarp + lane;
      uint32_t x[kTiles][kPieces<kKind> * 4];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int j = 0; j < kPieces<kKind>; ++j) {
          const uint4 v = from[(n * kPieces<kKind> + j) * cuda::kWarp];
          x[n][4 * j] = v.x, x[n][4 * j + 1] = v.y, x[n][4 * j + 2] = v.z, x[n][4 * j + 3] = v.w;
        }
#pragma unroll
      for (int a = 0; a < kParts; ++a) {
        const uint4 low = words[s][a][0], high = words[s][a][1];
        const uint32_t low_words[4] = {low.x, low.y, low.z, low.w}, high_words[4] = {high.x, high.y, high.z, high.w};
        const N low_numbers(w, scales[s][a][0].zero), high_numbers(w, scales[s][a][1].zero);
        float part[kTiles][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t l[N::kPairs], h[N::kPairs];
          low_numbers(low_words[i], l);
          high_numbers(high_words[i], h);
          // x[k] holds columns 2 k and 2 k + 1 of this lane's.
          const uint32_t one[4] = {l[0], h[0], l[1], h[1]};
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            if constexpr (kKind == WeightCodes::int4) {
              const uint32_t two[4] = {l[2], h[2], l[3], h[3]};
              cuda::tile::mma<T>(part[n], one, x[n][2 * i], x[n][8 + 2 * i]);
              cuda::tile::mma<T>(part[n], two, x[n][2 * i + 1], x[n][8 + 2 * i + 1]);
            } else {
              cuda::tile::mma<T>(part[n], one, x[n][2 * i], x[n][2 * i + 1]);
            }
          }
        }
        const float low_scale = scale_of(w, scales[s][a][0].scale), high_scale = scale_of(w, scales[s][a][1].scale);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          sums[a][n][0] = fmaf(low_scale, part[n][0], sums[a][n][0]);
          sums[a][n][1] = fmaf(low_scale, part[n][1], sums[a][n][1]);
          sums[a][n][2] = fmaf(high_scale, part[n][2], sums[a][n][2]);
          sums[a][n][3] = fmaf(high_scale, part[n][3], sums[a][n][3]);
        }
      }
      load(chunk + s + kChunk, s);
    }
    __syncthreads();  // before x is written over
  }

  // [row of x][row of W]
  float* const all = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int a = 0; a < kParts; ++a)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        all[(n * kTileColumns + lane % 4 * 2 + e % 2) * kBlockRows + (warp * kParts + a) * kTileRows + e / 2 * 8 +
            lane / 4] = sums[a][n][e];
#if __CUDA_ARCH__ >= 900
  if (ranks > 1)
    cuda::tile::cluster_sync();
  else
#endif
    __syncthreads();
  for (int i = rank * kThreads + thread; i < p.m * kBlockRows; i += ranks * kThreads) {
    const int64_t row = first + i % kBlockRows;
    if (row >= w.rows) continue;
    float sum = 0;
#if __CUDA_ARCH__ >= 900
    if (ranks > 1) {
      for (int r = 0; r < ranks; ++r) {
        float v;
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(cuda::tile::address_in(all + i, r)) : "memory");
        sum += v;
      }
    } else
#endif
      sum = all[i];
    if (p.bias != nullptr) sum += cuda::widen(static_cast<const T*>(p.bias)[row]);
    static_cast<T*>(p.y)[i / kBlockRows * w.rows + row] = cuda::narrow<T>(sum);
  }
#if __CUDA_ARCH__ >= 900
  if (ranks > 1) cuda::tile::cluster_sync();  // none ends whose memory another one reads
#endif
}

template <WeightCodes kKind, class T, int kTiles>
void launch(const Product& p) {
  // More rows of x are read from shared memory for each row of W: two parts share them.
  constexpr int kParts = kTiles > 1 ? 2 : 1, kBlockRows = kWarps * kParts * kTileRows;
  constexpr size_t kOfX = size_t{2} * kChunk * kTiles * kPieces<kKind> * cuda::kWarp * sizeof(uint4),
                   kOfSums = size_t{kTiles} * kTileColumns * kBlockRows * sizeof(float),
                   kShared = std::max(kOfX, kOfSums);
  const auto kernel = tiles_kernel<kKind, T, kTiles, kParts>;
  if constexpr (kShared > 48 * 1024)
    cuda::check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)),
        "packed_linear", "cudaFuncSetAttribute");
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "packed_linear", "cudaGetDevice");
  const cuda::DeviceProperties& card = cuda::properties(device);
  const int64_t blocks = (p.w.rows + kBlockRows - 1) / kBlockRows;
  int ranks = 1;
  while (card.major >= 9 && ranks < kMostBlocks && blocks * ranks < 3 * card.multiprocessors &&
         p.steps >= 2 * ranks * kLeastSteps)
    ranks *= 2;
  cuda::launch_early(kernel, cuda::blocks_for(blocks * ranks, 1), kThreads, kShared, ranks, p);
}

template <WeightCodes kKind, class T>
void by_rows(const Product& p) {
  if (p.m <= 8) return launch<kKind, T, 1>(p);
  if (p.m <= 16) return launch<kKind, T, 2>(p);
  launch<kKind, T, 4>(p);
}

}  // namespace

bool lowbit_tiles_cuda(const PackedView& w, DType t, const void* x, int64_t m, const void* bias, void* y) {
  const bool four = w.kind == WeightCodes::int4;
  if ((!four && w.kind != WeightCodes::int8 && w.kind != WeightCodes::e4m3) || !is_reduced_floating(t) || m > 32 ||
      w.scales == nullptr || w.nested != nullptr || w.scale_dtype == DType::f64)
    return false;
  const int64_t step = four ? 128 : 64, block = std::min(w.block_columns, w.columns);
  if (w.columns % step != 0 || block % step != 0 || w.row_bytes % 16 != 0 || !cuda::aligned16(w.codes) ||
      !cuda::aligned16(x))
    return false;
  const Product p{
      w, x, bias, y, static_cast<int>(m), static_cast<int>(w.columns / step), static_cast<int>(block / step)};
  const auto with = [&]<class T>() {
    if (four)
      by_rows<WeightCodes::int4, T>(p);
    else if (w.kind == WeightCodes::int8)
      by_rows<WeightCodes::int8, T>(p);
    else
      by_rows<WeightCodes::e4m3, T>(p);
  };
  t == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
  return true;
}

}  // namespace strata
