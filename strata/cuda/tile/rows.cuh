#pragma once
// Sums of a warpgroup's product (product.cuh) by their rows, in registers: a thread has two rows, 8 apart, of each 8
// columns the two from 2 (lane % 4) on; the four threads of a row are neighbours.

#include "strata/cuda/tile/fragment.cuh"

namespace strata::cuda::tile {

/// The row of this thread's number i in its tile of 64, and its column.
__device__ __forceinline__ int row_of(int i) {
  return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + i % 4 / 2 * 8;
}
__device__ __forceinline__ int column_of(int i) {
  return i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}
/// top = the larger of top and the row's largest number.
template <int N>
__device__ __forceinline__ void row_max(const float (&s)[N], float (&top)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i]);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
  }
}
/// sum += the row's numbers that this thread has; row_total() adds up what the row's four threads have.
template <int N>
__device__ __forceinline__ void row_sum(const float (&s)[N], float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i % 4 / 2] += s[i];
}
__device__ __forceinline__ void row_total(float (&sum)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
  }
}
/// The rows times a number each.
template <int N>
__device__ __forceinline__ void scale_rows(float (&s)[N], const float (&by)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] *= by[i % 4 / 2];
}
/// Rounded, as the a of another product whose depth these columns are: p[j] for 16 of them.
template <class T, int N>
__device__ __forceinline__ void round_operand(const float (&s)[N], uint32_t (&p)[N / 8][4]) {
#pragma unroll
  for (int j = 0; j < N / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[j][i] = pack2<T>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
}
/// Rounded, into a box of 64 swizzled rows of 128 bytes: columns from `first` of the sums on.
template <class T, int N>
__device__ __forceinline__ void store_box(uint8_t* box, const float (&s)[N], int first) {
  constexpr int kColumns = kRowBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < kColumns / 2; i += 2)
    store_pair<T>(box + swizzled_element<T>(row_of(i), column_of(i)), narrow<T>(s[first / 2 + i]),
                  narrow<T>(s[first / 2 + i + 1]));
}

}  // namespace strata::cuda::tile
