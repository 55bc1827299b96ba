// Products of at most 8 rows of x with low-bit matrices on tensor cores. All of x lies in shared memory; the warps of a
// block share the columns of 16 rows of W out, and each lane copies the codes that it will read itself through a ring
// of its own, many steps ahead and across rows, so that no thread waits for another one but once in 16 rows. What fits
// into the rings is asked for before the kernels before this one have ended, since they do not write weights.

#include <algorithm>
#include <cstdint>

#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/lowbit/lowbit_numbers.cuh"
#include "strata/ops/lowbit/lowbit_rows_kernel.h"

namespace strata {
namespace {
using namespace lowbit;

constexpr int kWarps = 8, kThreads = kWarps * cuda::kWarp;
constexpr int kAhead = 10;  // steps of a lane's ring
constexpr int kScaled = 4;  // steps whose scales the four lanes of a row load, one each
constexpr int kMostX = 8;   // rows of x
constexpr int kRingBytes = kWarps * kAhead * 2 * cuda::kWarp * 16;
constexpr int kMostShared = 227 * 1024;

// The block's partial sums of two tiles, [2][kWarps][m][kTileRows].
constexpr int sums_bytes(int m) {
  return 2 * kWarps * m * kTileRows * static_cast<int>(sizeof(float));
}

template <WeightCodes kKind, class T>
__global__ void __launch_bounds__(kThreads) rows_kernel(const Product p, int tiles) {
  using N = Numbers<kKind, T>;
  constexpr int kWords = kPieces<kKind> * 4;  // of x, of a lane in a step
  extern __shared__ uint4 shared[];
  cuda::let_next_begin();
  const PackedView& w = p.w;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  uint4* const ring = shared + warp * kAhead * 2 * cuda::kWarp + lane;
  float* const all = reinterpret_cast<float*>(shared + kRingBytes / 16);
  uint4* const x = shared + (kRingBytes + sums_bytes(p.m)) / 16;  // [steps][pieces][m][4]

  const int each = (p.steps + kWarps - 1) / kWarps, begin = min(warp * each, p.steps),
            own = min(p.steps - begin, each);  // steps of this warp, of each tile
  const int mine = (tiles - 1 - static_cast<int>(blockIdx.x)) / static_cast<int>(gridDim.x) + 1;  // tiles of this block
  const auto row_of = [&](int tile, int half) {  // what is behind the last is computed with the last
    return min(static_cast<int64_t>(tile) * kTileRows + half * 8 + lane / 4, w.rows - 1);
  };

  // Where the next step is copied from.
  const uint4* from[2];
  int ask_tile = static_cast<int>(blockIdx.x), ask_step = 0, ask_left = own == 0 ? 0 : mine * own;
  const auto ask_row = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      from[h] = reinterpret_cast<const uint4*>(w.codes + row_of(ask_tile, h) * w.row_bytes) + 4 * begin + lane % 4;
  };
  ask_row();
  const auto ask = [&](int slot) {
    if (ask_left > 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) cuda::tile::copy_async(ring + (slot * 2 + h) * cuda::kWarp, from[h] + 4 * ask_step);
      --ask_left;
      if (++ask_step == own) ask_step = 0, ask_tile += static_cast<int>(gridDim.x), ask_row();
    }
    cuda::tile::commit_copies();  // an empty one too, so that a step is a group
  };
  for (int i = 0; i < kAhead; ++i) ask(i);

  // The scale and zero of step `s` of this lane's rows, for the lanes that have it.
  struct Scales {
    uint32_t scale[2], zero[2];
  };
  const auto load_scales = [&](int tile, int s) {
    Scales r = {};
    if (s < own && tile < tiles) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t at = row_of(tile, h) / w.block_rows * w.grid_columns + (begin + s) / p.block_steps;
        r.scale[h] = w.scale_dtype == DType::f32 ? static_cast<const uint32_t*>(w.scales)[at]
                                                 : static_cast<const uint16_t*>(w.scales)[at];
        if (w.zeros != nullptr) r.zero[h] = w.zeros[at];
      }
    }
    return r;
  };
  Scales next = load_scales(static_cast<int>(blockIdx.x), lane % 4);

  cuda::wait_for_previous();
  const int row_pieces = p.steps * 4 * kPieces<kKind>;
  for (int i = thread; i < p.m * row_pieces; i += kThreads) {
    const int row = i / row_pieces, piece = i % row_pieces;
    const int step = piece / (4 * kPieces<kKind>), t = piece / kPieces<kKind> % 4, j = piece % kPieces<kKind>;
    x[((step * kPieces<kKind> + j) * p.m + row) * 4 + t] =
        *reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + row * w.columns + piece * 8);
  }
  __syncthreads();

  int slot = 0;
  for (int i = 0, tile = static_cast<int>(blockIdx.x); i < mine; ++i, tile += static_cast<int>(gridDim.x)) {
    float sums[4] = {};
    Scales now = next;
    for (int s = 0; s < own; ++s) {
      if (s % kScaled == 0) {
        now = next;
        next = s + kScaled < own ? load_scales(tile, s + kScaled + lane % 4)
                                 : load_scales(tile + static_cast<int>(gridDim.x), lane % 4);
      }
      cuda::tile::wait_copies<kAhead - 1>();
      const uint4 low = ring[slot * 2 * cuda::kWarp], high = ring[(slot * 2 + 1) * cuda::kWarp];
      uint32_t v[kWords] = {};
      if (lane / 4 < p.m) {
        const uint4* const piece = x + ((begin + s) * kPieces<kKind> * p.m + lane / 4) * 4 + lane % 4;
#pragma unroll
        for (int j = 0; j < kPieces<kKind>; ++j) {
          const uint4 four = piece[j * p.m * 4];
          v[4 * j] = four.x, v[4 * j + 1] = four.y, v[4 * j + 2] = four.z, v[4 * j + 3] = four.w;
        }
      }
      const int source = lane / 4 * 4 + s % kScaled;
      uint32_t zeros[2] = {};
      if (w.zeros != nullptr) {
        zeros[0] = __shfl_sync(0xffffffffu, now.zero[0], source);
        zeros[1] = __shfl_sync(0xffffffffu, now.zero[1], source);
      }
      const N low_numbers(w, zeros[0]), high_numbers(w, zeros[1]);
      const uint32_t low_words[4] = {low.x, low.y, low.z, low.w}, high_words[4] = {high.x, high.y, high.z, high.w};
      float part[2][4] = {};  // of every other word, so that a product need not wait for the one before it
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t l[N::kPairs], h[N::kPairs];
        low_numbers(low_words[k], l);
        high_numbers(high_words[k], h);
        const uint32_t one[4] = {l[0], h[0], l[1], h[1]};
        if constexpr (kKind == WeightCodes::int4) {
          const uint32_t two[4] = {l[2], h[2], l[3], h[3]};
          cuda::tile::mma<T>(part[0], one, v[2 * k], v[8 + 2 * k]);
          cuda::tile::mma<T>(part[1], two, v[2 * k + 1], v[8 + 2 * k + 1]);
        } else {
          cuda::tile::mma<T>(part[k % 2], one, v[2 * k], v[2 * k + 1]);
        }
      }
      ask(slot);
      if (++slot == kAhead) slot = 0;
      const float low_scale = scale_of(w, __shfl_sync(0xffffffffu, now.scale[0], source)),
                  high_scale = scale_of(w, __shfl_sync(0xffffffffu, now.scale[1], source));
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[e] = fmaf(e < 2 ? low_scale : high_scale, part[0][e] + part[1][e], sums[e]);
    }
    float* const block = all + i % 2 * kWarps * p.m * kTileRows;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = lane % 4 * 2 + e % 2;
      if (row < p.m) block[(warp * p.m + row) * kTileRows + e / 2 * 8 + lane / 4] = sums[e];
    }
    __syncthreads();  // those who read the sums of two tiles ago were here since
    if (thread < p.m * kTileRows) {
      const int64_t row = static_cast<int64_t>(tile) * kTileRows + thread % kTileRows;
      if (row < w.rows) {
        float sum = 0;
        for (int k = 0; k < kWarps; ++k) sum += block[k * p.m * kTileRows + thread];
        if (p.bias != nullptr) sum += cuda::widen(static_cast<const T*>(p.bias)[row]);
        static_cast<T*>(p.y)[thread / kTileRows * w.rows + row] = cuda::narrow<T>(sum);
      }
    }
  }
}

template <WeightCodes kKind, class T>
void launch(const Product& p, int shared) {
  const auto tiles = static_cast<int>((p.w.rows + kTileRows - 1) / kTileRows);
  cuda::tile::prepare<rows_kernel<kKind, T>>(kMostShared);
  cuda::launch_early(rows_kernel<kKind, T>, static_cast<unsigned>(cuda::tile::staying_blocks(tiles)), kThreads,
                     static_cast<size_t>(shared), 1, p, tiles);
}

}  // namespace

bool lowbit_rows_cuda(const Product& p, DType t) {
  const int64_t shared = kRingBytes + sums_bytes(p.m) + 2 * p.m * p.w.columns;
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "packed_linear", "cudaGetDevice");
  if (p.m > kMostX || p.steps < kWarps || shared > kMostShared || p.w.rows > int64_t{INT32_MAX} ||
      cuda::properties(device).major < 9)
    return false;
  const auto with = [&]<class T>() {
    if (p.w.kind == WeightCodes::int4)
      launch<WeightCodes::int4, T>(p, static_cast<int>(shared));
    else if (p.w.kind == WeightCodes::int8)
      launch<WeightCodes::int8, T>(p, static_cast<int>(shared));
    else
      launch<WeightCodes::e4m3, T>(p, static_cast<int>(shared));
  };
  t == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
  return true;
}

}  // namespace strata
