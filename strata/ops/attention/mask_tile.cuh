#pragma once
// Tiles of additive masks of 16 bits, which the copy engine brings to shared memory in the Hopper kernels: rows of
// queries, in chunks of 64 keys, swizzled as operands are. Where a mask has one row for all queries, a chunk is that
// row.

#include "strata/ops/attention/hopper.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda::hopper {

#ifndef STRATA_TILE_EMULATION
/// A map of the mask for boxes of 64 keys by `rows` queries; says in `o` whether there is one.
CUtensorMap mask_map(const AttentionCall& c, int rows, Options& o);
#endif

/// Starts the copy of the queries from `row` on and the 64 keys from `key` on.
__device__ __forceinline__ void copy_mask(void* to, const CUtensorMap& map, uint64_t* barrier, const AttentionCall& c,
                                          const Options& o, int b, int h, int row, int key) {
  copy_in(to, map, barrier, key, o.one_query ? 0 : row, c.mask_stride[1] == 0 ? 0 : h, c.mask_stride[0] == 0 ? 0 : b);
}
/// Bytes of a chunk of `rows` queries.
__device__ __forceinline__ int mask_bytes(const Options& o, int rows) {
  return o.one_query ? 128 : rows * 128;
}

// x and y, times a scale, plus a pair of the mask's numbers.
template <class M>
__device__ __forceinline__ void add_pair(float& x, float& y, float scale, uint32_t v) {
  const float2 m = unpack2<M>(v);
  x = fmaf(x, scale, m.x), y = fmaf(y, scale, m.y);
}

/// Adds to a warp's scores, 16 queries by 8 kBlocks keys, its part of a tile: `tile` is the warpgroup's first chunk,
/// `step` bytes lie between chunks.
template <class M, int kBlocks>
__device__ __forceinline__ void add_mask(float (&s)[4 * kBlocks], const Options& o, const void* tile, int step) {
  const int lane = threadIdx.x % 32, row = o.one_query ? 0 : threadIdx.x % 128 / 32 * 16 + lane % 16;
  const uint8_t* const from = static_cast<const uint8_t*>(tile) + row * 128;
#pragma unroll
  for (int j = 0; j < kBlocks / 2; ++j) {
    uint32_t v[4];
    load_matrices(
        v, reinterpret_cast<const uint16_t*>(from + j / 4 * step + ((2 * (j % 4) + lane / 16) ^ (row % 8)) * 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) add_pair<M>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1], o.scale, v[i]);
  }
}
/// The same for transposed scores, 16 keys by 8 kBlocks queries: `tile` is the chunk of the warpgroup's keys.
template <class M, int kBlocks>
__device__ __forceinline__ void add_mask_transposed(float (&s)[4 * kBlocks], const Options& o, const void* tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, piece = 2 * warp + lane / 8 % 2;
  const int row = o.one_query ? 0 : lane % 8 + lane / 16 * 8;
  const uint8_t* const from = static_cast<const uint8_t*>(tile) + row * 128 + (piece ^ (row % 8)) * 16;
#pragma unroll
  for (int j = 0; j < kBlocks / 2; ++j) {
    uint32_t v[4];
    load_transposed(v, reinterpret_cast<const uint16_t*>(from + (o.one_query ? 0 : j * 2048)));
#pragma unroll
    for (int i = 0; i < 4; ++i) add_pair<M>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1], o.scale, v[i]);
  }
}

}  // namespace strata::attention_cuda::hopper
