#pragma once
// What the kernels of convolutions on Hopper's tensor cores share: operands with their channels innermost, and stages
// of tiles in shared memory.

#include "strata/ops/conv/conv_cuda.cuh"
#include "strata/ops/conv/warpgroup.cuh"

namespace strata::conv_cuda {

inline constexpr int kBlockN = 128;    // columns of a block's tile
inline constexpr int kStages = 3;      // several blocks share a multiprocessor
inline constexpr int kDeepStages = 6;  // a block has one for itself
inline constexpr int kRowBytes = 128;

// ---- operands ----

/// Channels, and zeros to a multiple of 16 bytes.
int pad_channels(int64_t channels, DType t);
/// [images, groups, channels, pixels] with channels innermost and padded to 16 bytes.
Tensor turn(DType t, Device device, const void* from, int64_t images, int64_t groups, int64_t channels, int64_t pixels);
/// Filters [oc, channels, taps] with channels innermost; `given` itself where they are already, else in `keep`.
const void* turn_filters(DType t, Device device, const void* given, int64_t oc, int64_t channels, int64_t taps,
                         Tensor& keep);
/// Whether the card, the dtype, and sizes that the kernels' 32-bit numbers hold allow these kernels.
bool fits_hopper(const ConvSizes& s, DType t, Device device);

// ---- shared memory ----

template <int Warpgroups>
constexpr int stage_bytes() {
  return (64 * Warpgroups + kBlockN) * kRowBytes;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes to shared memory, zeros unless `valid`; past L1, whose traffic is that of shared memory.
__device__ __forceinline__ void copy_piece(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the last `Left` groups of copies are there, for the tensor cores too.
template <int Left>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;\nfence.proxy.async.shared::cta;" ::"n"(Left) : "memory");
}
__device__ __forceinline__ uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
}

// Queues sums += a b for a stage whose rows are along the sum.
template <class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[64], uint32_t a, uint32_t b) {
  warpgroup_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    warpgroup_product<T, false>(sums, rows_along_k(a + static_cast<uint32_t>(k * 32)),
                                rows_along_k(b + static_cast<uint32_t>(k * 32)), 1);
  warpgroup_commit();
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
      if (c < columns) store_vec(line + c, Vec<float, 2>{sums[j * 4 + h * 2], sums[j * 4 + h * 2 + 1]});
    }
  }
}

}  // namespace strata::conv_cuda
