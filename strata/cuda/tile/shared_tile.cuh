#pragma once
// How tiles lie in shared memory: rows of 16-byte pieces, so that the eight rows that a matrix load or a product reads
// at once are in different banks.

#include <cstdint>

#ifdef STRATA_TILE_EMULATION
#include "strata/cuda/tile/emulation.cuh"  // the same kernels as functions of the processor
#else
#include "strata/cuda/kernel.cuh"
#endif

namespace strata::cuda::tile {

#ifndef STRATA_TILE_EMULATION
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
/// The block's dynamic shared memory, which begins at a multiple of 1024 bytes.
__device__ __forceinline__ uint8_t* shared_memory() {
  extern __shared__ __align__(1024) uint8_t strata_tile_memory[];
  return strata_tile_memory;
}
/// Two neighbours into shared memory, with one store.
template <class T>
__device__ __forceinline__ void store_pair(uint8_t* to, T a, T b) {
  store_vec(reinterpret_cast<T*>(to), Vec<T, 2>{a, b});
}
#endif

// ---- numbers of eight bits (s8 is int8_t) ----

struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};

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
/// The place in bytes of element `column` of T of such a row.
template <class T>
__device__ __forceinline__ uint32_t swizzled_element(int row, int column) {
  const int byte = column * static_cast<int>(sizeof(T));
  return swizzled(row, byte / 16) + static_cast<uint32_t>(byte % 16);
}
template <int D>
inline constexpr int kChunks = (D + 63) / 64;

}  // namespace strata::cuda::tile
