#pragma once
// Stages of tiles in shared memory that products of warpgroups take: 64 rows a warpgroup and kBlockN columns, each row
// 128 bytes along the sum.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/product.cuh"

namespace strata::conv_cuda {

using namespace cuda::tile;

inline constexpr int kBlockN = 128;    // columns of a block's tile
inline constexpr int kStages = 3;      // several blocks share a multiprocessor
inline constexpr int kDeepStages = 6;  // a block has one for itself

template <int Warpgroups>
constexpr int stage_bytes() {
  return (64 * Warpgroups + kBlockN) * kRowBytes;
}

// All but the last `Left` groups of copies are there, for the tensor cores too.
template <int Left>
__device__ __forceinline__ void copy_wait() {
  wait_copies<Left>();
  fence_shared();
}

// Queues sums += a b for a stage whose rows are along the sum.
template <class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[64], uint32_t a, uint32_t b) {
  fence_products();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    multiply<T, false, false>(sums, descriptor_k(a + static_cast<uint32_t>(k * 32)),
                              descriptor_k(b + static_cast<uint32_t>(k * 32)), 1);
  commit_products();
}

// A warpgroup's sums into [m, columns] from (row, column) on; `columns` is even.
__device__ __forceinline__ void write_sums(const float (&sums)[64], float* to, int m, int columns, int row0,
                                           int column0) {
  const int lane = static_cast<int>(threadIdx.x) % 32,
            row = row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + h * 8 >= m) continue;
    float* const line = to + static_cast<int64_t>(row + h * 8) * columns;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int c = column0 + j * 8 + lane % 4 * 2;
      if (c < columns) *reinterpret_cast<float2*>(line + c) = {sums[j * 4 + h * 2], sums[j * 4 + h * 2 + 1]};
    }
  }
}

}  // namespace strata::conv_cuda
