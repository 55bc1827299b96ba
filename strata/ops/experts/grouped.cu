// Products by groups of rows on a CUDA device. Tiles of 64 by 64 results, summed in f32 (f64 for f64) in the order of
// the inner index, so that the bits do not depend on the grid. How many rows a group has stays on the device: a grid of
// as many row tiles as any division of the rows can have, of which those past the last end at once.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/experts/grouped_kernel.h"

namespace strata {
namespace {

constexpr int kTile = 64, kStep = 16, kThreads = 256, kEach = 4;

// The group whose row tile `tile` is, and its first row; -1 past the last.
__device__ int64_t group_of(const GroupedCall& c, int64_t tile, int64_t& first) {
  int64_t before = 0;
  for (int64_t e = 0; e < c.groups; ++e) {
    const int64_t tiles = (c.offsets[e + 1] - c.offsets[e] + kTile - 1) / kTile;
    if (tile < before + tiles) {
      first = c.offsets[e] + (tile - before) * kTile;
      return e;
    }
    before += tiles;
  }
  return -1;
}

// sum[i][j] over l of left(row i, l) * right(l, column j), for 4 x 4 results a thread; `inner` values of l.
template <class C, class Left, class Right>
__device__ void multiply(C (&sum)[kEach][kEach], int64_t inner, Left left, Right right) {
  __shared__ C a[kStep][kTile + 1], b[kStep][kTile + 1];
  const int row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kEach) * kEach;
  for (int64_t from = 0; from < inner; from += kStep) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kStep; i += kThreads) {
      const int l = i % kStep, at = i / kStep;
      a[l][at] = from + l < inner ? left(at, from + l) : C(0);
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kStep; i += kThreads) {
      const int at = i % kTile, l = i / kTile;
      b[l][at] = from + l < inner ? right(from + l, at) : C(0);
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kStep; ++l)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum[i][j] += a[l][row + i] * b[l][column + j];
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) linear_kernel(GroupedCall c) {
  using C = compute_t<T>;
  __shared__ int64_t at[2];
  if (threadIdx.x == 0) {
    at[1] = 0;
    at[0] = group_of(c, blockIdx.x, at[1]);
  }
  __syncthreads();
  const int64_t e = at[0], first = at[1];
  if (e < 0) return;
  const int64_t rows = min(int64_t{kTile}, c.offsets[e + 1] - first), column0 = int64_t{blockIdx.y} * kTile;
  const T* x = static_cast<const T*>(c.a) + first * c.a_row;
  const T* w = static_cast<const T*>(c.b) + e * c.b_group + column0 * c.b_row;
  C sum[kEach][kEach] = {};
  multiply<C>(
      sum, c.k,
      [&](int i, int64_t l) { return i < rows ? C(cuda::widen(x[i * c.a_row + l * c.a_col])) : C(0); },
      [&](int64_t l, int j) { return column0 + j < c.m ? C(cuda::widen(w[j * c.b_row + l * c.b_col])) : C(0); });
  const int row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kEach) * kEach;
  T* y = static_cast<T*>(c.y) + first * c.m + column0;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j)
      if (row + i < rows && column0 + column + j < c.m)
        y[(row + i) * c.m + column + j] = cuda::narrow<T>(sum[i][j]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) outer_kernel(GroupedCall c) {
  using C = compute_t<T>;
  const int64_t e = blockIdx.z, row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  const int64_t first = c.offsets[e], rows = c.offsets[e + 1] - first;
  const T* g = static_cast<const T*>(c.a) + first * c.a_row + row0 * c.a_col;
  const T* x = static_cast<const T*>(c.b) + first * c.b_row + column0 * c.b_col;
  C sum[kEach][kEach] = {};
  multiply<C>(
      sum, rows,
      [&](int i, int64_t l) { return row0 + i < c.m ? C(cuda::widen(g[l * c.a_row + i * c.a_col])) : C(0); },
      [&](int64_t l, int j) { return column0 + j < c.k ? C(cuda::widen(x[l * c.b_row + j * c.b_col])) : C(0); });
  const int row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kEach) * kEach;
  T* y = static_cast<T*>(c.y) + (e * c.m + row0) * c.k + column0;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j)
      if (row0 + row + i < c.m && column0 + column + j < c.k)
        y[(row + i) * c.k + column + j] = cuda::narrow<T>(sum[i][j]);
}

}  // namespace

void grouped_linear_cuda(const GroupedCall& c) {
  if (c.n == 0 || c.m == 0) return;
  const dim3 grid(cuda::blocks_for(c.n, kTile) + static_cast<unsigned>(c.groups), cuda::blocks_for(c.m, kTile));
  dispatch_floats(c.dtype, "grouped_linear",
                  [&]<class T>() { linear_kernel<T><<<grid, kThreads, 0, cuda::stream()>>>(c); });
}

void grouped_outer_cuda(const GroupedCall& c) {
  if (c.groups == 0 || c.m == 0 || c.k == 0) return;
  const dim3 grid(cuda::blocks_for(c.k, kTile), cuda::blocks_for(c.m, kTile), static_cast<unsigned>(c.groups));
  dispatch_floats(c.dtype, "grouped_outer",
                  [&]<class T>() { outer_kernel<T><<<grid, kThreads, 0, cuda::stream()>>>(c); });
}

}  // namespace strata
