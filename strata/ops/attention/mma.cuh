#pragma once
// Tiles of the attention kernels on mma.sync: copied in rows, and read as its operands.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/shared_tile.cuh"

namespace strata::attention_cuda {

using namespace cuda::tile;

/// Starts the copy of rows [first, first + Rows) of `p` (rows `stride` apart) to a tile; rows from `end` on and columns
/// from `size` on are zeros.
template <int Rows, int D, int Threads, class T>
__device__ __forceinline__ void copy_tile(uint16_t* tile, const T* p, int64_t stride, int64_t first, int64_t end,
                                          int size) {
  constexpr int kPieces = D / 8;
  for (int i = threadIdx.x; i < Rows * kPieces; i += Threads) {
    const int row = i / kPieces, piece = i % kPieces;
    const bool valid = first + row < end && 8 * piece < size;
    copy_async(shared_address(tile + TileShape<D>::at(row, piece)),
               p + (valid ? (first + row) * stride + piece * 8 : 0), valid);
  }
}

/// A operand: rows row0 .. row0 + 15, columns 16 k .. 16 k + 15.
template <int D>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const uint16_t* tile, int row0, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(a, tile + TileShape<D>::at(row0 + lane % 16, 2 * k + lane / 16));
}
/// B operands of two neighbouring blocks of 8 columns of b = tile^T: b[k][n] = tile[n][k], rows n0 .. n0 + 15 of the
/// tile, its columns 16 k .. 16 k + 15. (b[0], b[1]) is the first block's, (b[2], b[3]) the second's.
template <int D>
__device__ __forceinline__ void load_b_rows(uint32_t (&b)[4], const uint16_t* tile, int n0, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(b, tile + TileShape<D>::at(n0 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}
/// The same for b = tile: b[k][n] = tile[k0 + k][8 piece + n], pieces `piece` and `piece` + 1.
template <int D>
__device__ __forceinline__ void load_b_columns(uint32_t (&b)[4], const uint16_t* tile, int k0, int piece) {
  const int lane = threadIdx.x % 32;
  load_transposed(b, tile + TileShape<D>::at(k0 + lane % 16, piece + lane / 16));
}

}  // namespace strata::attention_cuda
