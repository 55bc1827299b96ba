#pragma once
// Tensor-core pieces of the attention kernels: operands of m16n8k16 products of bf16 or f16 from shared memory. Tiles
// lie there in rows of D elements in 16-byte pieces, piece p of row r at place p ^ (r % 8) within its group of eight
// where D is a multiple of 64, else in rows padded by 16 bytes: both keep the eight rows of an ldmatrix in different
// banks.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/mma.cuh"

namespace strata::attention_cuda {

template <int D>
struct TileShape {
  static constexpr bool kSwizzled = D % 64 == 0;
  static constexpr int kPitch = kSwizzled ? D : D + 8;  // elements
  __device__ static int at(int row, int piece) { return row * kPitch + (kSwizzled ? (piece ^ (row & 7)) : piece) * 8; }
};

/// Four 8x8 matrices; lanes 8m .. 8m + 7 hold the addresses of matrix m's rows.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const uint16_t* p) {
  const uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const uint16_t* p) {
  const uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a)
               : "memory");
}

using cuda::mma;

/// Two neighbours of a row, rounded.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return static_cast<uint32_t>(cuda::narrow<T>(high).bits) << 16 | cuda::narrow<T>(low).bits;
}

/// 16 bytes to shared memory without registers; zeros where `valid` is false.
__device__ __forceinline__ void copy_async(uint16_t* to, const void* from, bool valid) {
  const uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(a), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all but the last `Pending` groups.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Starts the copy of rows [first, first + Rows) of `p` (rows `stride` apart) to a tile; rows from `end` on and columns
/// from `size` on are zeros.
template <int Rows, int D, int Threads, class T>
__device__ __forceinline__ void copy_tile(uint16_t* tile, const T* p, int64_t stride, int64_t first, int64_t end,
                                          int size) {
  constexpr int kPieces = D / 8;
  for (int i = threadIdx.x; i < Rows * kPieces; i += Threads) {
    const int row = i / kPieces, piece = i % kPieces;
    const bool valid = first + row < end && 8 * piece < size;
    copy_async(tile + TileShape<D>::at(row, piece), p + (valid ? (first + row) * stride + piece * 8 : 0), valid);
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
