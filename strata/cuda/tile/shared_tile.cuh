#pragma once
// How tiles lie in shared memory: rows of 16-byte pieces, so that the eight rows that a matrix load or a product reads
// at once are in different banks.

#include <cstdint>

#include "strata/cuda/kernel.cuh"

namespace strata::cuda::tile {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// Rows of D elements of 16 bits: piece p of row r at place p ^ (r % 8) within its group of eight where D is a multiple
/// of 64, else in rows padded by 16 bytes.
template <int D>
struct TileShape {
  static constexpr bool kSwizzled = D % 64 == 0;
  static constexpr int kPitch = kSwizzled ? D : D + 8;  // elements
  __device__ static int at(int row, int piece) { return row * kPitch + (kSwizzled ? (piece ^ (row & 7)) : piece) * 8; }
};

/// Rows of 128 bytes, as products of a warpgroup and the copy engine take them (128-byte swizzle): the place in bytes
/// of a piece. A wider tile is a number of chunks of 64 columns of 16 bits, each of this form, beginning at multiples
/// of 1024 bytes.
inline constexpr int kRowBytes = 128;
__device__ __forceinline__ uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
}
template <int D>
inline constexpr int kChunks = (D + 63) / 64;

}  // namespace strata::cuda::tile
