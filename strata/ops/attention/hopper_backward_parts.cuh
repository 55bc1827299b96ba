#pragma once
// What a backward kernel for Hopper is made of.

#include "strata/ops/attention/mask_tile.cuh"

namespace strata::attention_cuda::hopper {

/// Queries of a tile, tiles in flight, buffers of keys and values: with two a block stays and takes one item of work
/// after another, with one it has the item of its number.
template <int kD, int kRowsN, int kStagesN, int kKeyBuffersN>
struct BackwardShape {
  static constexpr int D = kD, kRows = kRowsN, kKeys = 128, kStages = kStagesN, kKeyBuffers = kKeyBuffersN;
  static constexpr bool kStays = kKeyBuffers > 1;
  static constexpr int kThreads = 3 * 128;
  static constexpr int kKeyBytes = kKeys * 128 * kChunks<D>, kRowBytes = kRows * 128 * kChunks<D>,
                       kScoreBytes = kRows * kKeys * 2, kSumBytes = kRows * D * 4;
  static constexpr int kBarriers = 3 * kKeyBuffers + 4 * kStages + 2, kMaskBarriers = 4;
  static constexpr int kSharedBytes = 8 * kKeyBuffers + 2 * kKeyBuffers * kKeyBytes + 2 * kStages * kRowBytes +
                                      2 * kScoreBytes + kSumBytes + 2 * kStages * kRows * 4 + 8 * kBarriers;
  // With options: barriers of mask tiles, then what is said of tiles of queries and of keys.
  static constexpr int kOptionBytes = 8 * kMaskBarriers + 8 * kStages + 4 * kKeyBuffers;
  static_assert(kSharedBytes + kOptionBytes <= 227 * 1024);
  // A warpgroup's part of the gradient of a tile of queries is 64 x 64: rows, or columns, 64 group on.
  static constexpr bool kSplitRows = kRows == 128;
  // Between them they have what the block starts with, 168 for each of its threads.
  static constexpr int kCopyRegisters = D == 64 ? 40 : 24, kRegisters = D == 64 ? 232 : 240;
  static_assert(kSplitRows ? D == 64 : kRows == 64 && D == 128);
};

struct BackwardMaps {
  CUtensorMap q, k, v, grad_out, grad_k, grad_v;
};
/// f32 workspace: for each head (rows of `pitch` queries) lse2 and delta; for each tile of queries the sum of grad_q,
/// in the order of registers, and the count of its terms.
struct BackwardSpace {
  float *lse2, *delta, *sums;
  int *counts, *ticket;             // the next block's worth of keys
  int pitch, row_tiles, key_tiles;  // of several sequences, tiles of all
  int together;                     // blocks that run at the same time
  bool rotated;                     // blocks of a head start at different queries
};

template <bool kFirst, class A, class B>
__device__ __forceinline__ auto& either(A& a, B& b) {
  if constexpr (kFirst)
    return a;
  else
    return b;
}

}  // namespace strata::attention_cuda::hopper
