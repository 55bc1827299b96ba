#pragma once
// What a forward kernel for Hopper is made of, and which tiles it takes in which order.

#include "strata/ops/attention/mask_tile.cuh"

namespace strata::attention_cuda::hopper {

struct ForwardMaps {
  CUtensorMap q, k, v, out;
};
/// Which tiles of queries of which heads a block computes, in which order: heads go in sections whose keys and values
/// fit the L2 together, within one the tiles that see most come first.
struct Schedule {
  int tiles, heads, section;  // tiles of a head, heads of all batches, heads of a section
  __device__ __forceinline__ void locate(int at, int& tile, int& head) const {
    const int first = at / (section * tiles) * section, rest = at - first * tiles;
    const int count = min(section, heads - first);
    tile = rest / count, head = first + rest % count;
  }
  __host__ __device__ __forceinline__ int total() const { return tiles * heads; }
  /// Item `round` of this block, every second round backwards, or -1.
  __device__ __forceinline__ int item(int round) const {
    const int blocks = gridDim.x, i = blockIdx.x, at = round * blocks + (round & 1 ? blocks - 1 - i : i);
    return at < total() ? at : -1;
  }
  __device__ __forceinline__ int rounds() const { return (total() + gridDim.x - 1) / gridDim.x; }
};

/// What a kernel is made of: warpgroups with 64 queries each, keys of a tile, tiles in flight, buffers of queries,
/// blocks that share a multiprocessor; whether scores run ahead, whether warpgroups take turns.
template <int kD, int kGroupsN, int kKeysN, int kStagesN, int kQueryBuffersN, int kBlocksN, bool kAheadN, bool kTurnsN>
struct ForwardShape {
  static constexpr int D = kD, kGroups = kGroupsN, kKeys = kKeysN, kStages = kStagesN, kQueryBuffers = kQueryBuffersN,
                       kBlocks = kBlocksN;
  static constexpr bool kAhead = kAheadN, kTurns = kTurnsN;
  static constexpr int kQueries = 64 * kGroups, kChunk = 64 * 128;  // bytes of 64 rows of a chunk
  // With one block a multiprocessor registers move from the warpgroup that copies to the others.
  static constexpr bool kMoveRegisters = kBlocks == 1;
  static constexpr int kThreads = 128 * kGroups + (kMoveRegisters ? 128 : 32);
  static constexpr int kQueryBytes = kQueries * 128 * kChunks<D>, kTileBytes = kKeys * 128 * kChunks<D>;
  static constexpr int kBarriers = 2 * kQueryBuffers + 4 * kStages;
  static constexpr int kSharedBytes =
      kQueryBuffers * kQueryBytes + 2 * kStages * kTileBytes + 8 * kBarriers + 4 * kQueryBuffers;
  // Tiles of an additive mask, as many as of keys, where there is room: behind the rest, with barriers of their own.
  static constexpr int kMaskBytes = kQueries * kKeys * 2, kMaskBarriersAt = (kSharedBytes + 7) / 8 * 8,
                       kMasksAt = (kMaskBarriersAt + 16 * kStages + 1023) / 1024 * 1024,
                       kSharedBytesWithMasks = kMasksAt + kStages * kMaskBytes;
  static constexpr bool kMasks = kKeys % 64 == 0 && kSharedBytesWithMasks <= 227 * 1024;
};

/// The tiles of keys that a block of queries passes over, from the last to the first: all between two ends, or those of
/// them of which a mask shows something.
template <class S, bool kFlags>
struct KeyTiles {
  int first = 0, n = 0;  // the first key, the number of tiles
  int at = 0;            // tiles that next() has named

  __device__ __forceinline__ KeyTiles(const AttentionCall& c, const Options&, int, int, int q0) {
    int64_t begin, end;
    visible_keys(c, max(q0, 0), min(static_cast<int64_t>(q0) + S::kQueries, c.tq), begin, end);
    first = static_cast<int>(min(begin, c.tk));
    n = end > begin ? static_cast<int>((end - begin + S::kKeys - 1) / S::kKeys) : 0;
  }
  /// The first key of the next one.
  __device__ __forceinline__ int next() { return first + (n - 1 - at++) * S::kKeys; }
  /// How many come before the first that has keys up to `last`, and how many of all come before those without keys
  /// from `begin` on.
  __device__ __forceinline__ void needed(int begin, int last, int& from, int& to) const {
    from = 0, to = n;
    while (from < to && first + (n - 1 - from) * S::kKeys > last) ++from;
    while (from < to && first + (n - to) * S::kKeys + S::kKeys - 1 < begin) --to;
  }
};
template <class S>
struct KeyTiles<S, true> {
  const uint32_t* flags[S::kGroups];  // of 64 queries each; null: there are none
  int begin = 0, end = 0, n = 0, at = 0;
  bool all;

  __device__ __forceinline__ KeyTiles(const AttentionCall& c, const Options& o, int b, int h, int q0) {
    int64_t first, last;
    visible_keys(c, max(q0, 0), min(static_cast<int64_t>(q0) + S::kQueries, c.tq), first, last);
    all = o.tiles == nullptr;
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      const int row = q0 + 64 * g;
      flags[g] = !all && row >= 0 && row < c.tq ? o.tiles_of(b, h, row / 64) : nullptr;
    }
    if (last > first) begin = static_cast<int>(first / S::kKeys), end = static_cast<int>((last - 1) / S::kKeys) + 1;
    n = count(begin, end), at = end;
  }
  __device__ __forceinline__ uint32_t word(int i) const {
    uint32_t w = all ? ~0u : 0;
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g)
      if (flags[g] != nullptr) w |= flags[g][i];
    return w;
  }
  __device__ __forceinline__ int count(int from, int to) const {
    int sum = 0;
    for (int i = from / 32; 32 * i < to; ++i) {
      uint32_t w = word(i);
      if (32 * i < from) w &= ~0u << (from - 32 * i);
      if (to - 32 * i < 32) w &= ~0u >> (32 - (to - 32 * i));
      sum += __popc(w);
    }
    return sum;
  }
  __device__ __forceinline__ int next() {
    for (;;) {  // there is one: next() is called n times
      const int i = (at - 1) / 32, bits = at - 32 * i;
      const uint32_t w = word(i) & (~0u >> (32 - bits));
      if (w != 0) {
        at = 32 * i + 31 - __clz(w);
        return at * S::kKeys;
      }
      at = 32 * i;
    }
  }
  __device__ __forceinline__ void needed(int first, int last, int& from, int& to) const {
    from = last < 0 ? n : count(max(begin, last / S::kKeys + 1), end);
    to = max(from, n - count(begin, min(end, first / S::kKeys)));
  }
};

}  // namespace strata::attention_cuda::hopper
