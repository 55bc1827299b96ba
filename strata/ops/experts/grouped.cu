// Products by groups of rows on a CUDA device: 16 bits on Hopper by grouped_tiles.cuh, all others here, in tiles of
// results that are summed in f32 (f64 for f64) in the order of the inner index, so that the bits do not depend on the
// grid. How many rows a group has stays on the device: a grid of as many row tiles as any division of the rows can
// have, of which those past the last end at once.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/experts/grouped_kernel.h"

namespace strata {
namespace {

// A block of 256 threads has kTile by kTile results, each thread 4 by 4 of them, or four such squares, half a tile
// apart (128 by 128, which reads shared memory half as often for each product).
constexpr int kStep = 16, kThreads = 256, kSide = 16, kFour = 4;

// The group whose row tile `tile` is, and its first row; -1 past the last.
__device__ int64_t group_of(const GroupedCall& c, int64_t tile, int64_t height, int64_t& first) {
  int64_t before = 0;
  for (int64_t e = 0; e < c.groups; ++e) {
    const int64_t tiles = (c.offsets[e + 1] - c.offsets[e] + height - 1) / height;
    if (tile < before + tiles) {
      first = c.offsets[e] + (tile - before) * height;
      return e;
    }
    before += tiles;
  }
  return -1;
}

template <class C, int kTile>
struct Sums {
  static constexpr int kSquares = kTile / (kSide * kFour), kEach = kSquares * kFour;
  C v[kEach][kEach] = {};

  // The place in the tile of this thread's row (column) i.
  __device__ static int row(int i) {
    return i / kFour * (kSide * kFour) + static_cast<int>(threadIdx.x) / kSide * kFour + i % kFour;
  }
  __device__ static int column(int i) {
    return i / kFour * (kSide * kFour) + static_cast<int>(threadIdx.x) % kSide * kFour + i % kFour;
  }

  // v[i][j] += over l of left(row i, l) * right(l, column j); `inner` values of l. What stands side by side in memory
  // is read by neighbouring threads: of the left l where `by_depth` has bit 0, of the right where it has bit 1. What
  // the next step takes is on its way while this one's is multiplied.
  template <class Left, class Right>
  __device__ void add_products(int64_t inner, int by_depth, Left left, Right right) {
    constexpr int kFetched = kTile * kStep / kThreads, kWide = 16 / static_cast<int>(sizeof(C));
    __shared__ __align__(16) C a[kStep][kTile + kFour], b[kStep][kTile + kFour];
    const int thread = static_cast<int>(threadIdx.x);
    const int left_l = by_depth & 1 ? thread % kStep : thread / kTile, left_step = by_depth & 1 ? 0 : kThreads / kTile;
    const int left_at = by_depth & 1 ? thread / kStep : thread % kTile, left_by = by_depth & 1 ? kThreads / kStep : 0;
    const int right_l = by_depth & 2 ? thread % kStep : thread / kTile,
              right_step = by_depth & 2 ? 0 : kThreads / kTile;
    const int right_at = by_depth & 2 ? thread / kStep : thread % kTile, right_by = by_depth & 2 ? kThreads / kStep : 0;
    C next_a[kFetched], next_b[kFetched];
    const auto fetch = [&](int64_t from) {
#pragma unroll
      for (int e = 0; e < kFetched; ++e) {
        const int64_t l = from + left_l + e * left_step, r = from + right_l + e * right_step;
        next_a[e] = l < inner ? left(left_at + e * left_by, l) : C(0);
        next_b[e] = r < inner ? right(r, right_at + e * right_by) : C(0);
      }
    };
    fetch(0);
    for (int64_t from = 0; from < inner; from += kStep) {
#pragma unroll
      for (int e = 0; e < kFetched; ++e) {
        a[left_l + e * left_step][left_at + e * left_by] = next_a[e];
        b[right_l + e * right_step][right_at + e * right_by] = next_b[e];
      }
      __syncthreads();
      fetch(from + kStep);
#pragma unroll
      for (int l = 0; l < kStep; ++l) {
        C x[kEach], y[kEach];
#pragma unroll
        for (int i = 0; i < kEach; i += kWide) {
          const cuda::Vec<C, kWide> p = cuda::load_vec<kWide>(&a[l][row(i)]),
                                    q = cuda::load_vec<kWide>(&b[l][column(i)]);
#pragma unroll
          for (int e = 0; e < kWide; ++e) x[i + e] = p.v[e], y[i + e] = q.v[e];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j) v[i][j] += x[i] * y[j];
      }
      __syncthreads();
    }
  }
  // Those of `rows` by `columns` results into a matrix whose rows are `step` apart.
  template <class T>
  __device__ void store(T* y, int64_t rows, int64_t columns, int64_t step) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (row(i) < rows && column(j) < columns) y[row(i) * step + column(j)] = cuda::narrow<T>(v[i][j]);
  }
};

template <class T, int kTile>
__global__ void __launch_bounds__(kThreads) linear_kernel(GroupedCall c) {
  using C = compute_t<T>;
  __shared__ int64_t at[2];
  if (threadIdx.x == 0) {
    at[1] = 0;
    at[0] = group_of(c, blockIdx.x, kTile, at[1]);
  }
  __syncthreads();
  const int64_t e = at[0], first = at[1];
  if (e < 0) return;
  const int64_t rows = min(int64_t{kTile}, c.offsets[e + 1] - first), column0 = int64_t{blockIdx.y} * kTile;
  const T* x = static_cast<const T*>(c.a) + first * c.a_row;
  const T* w = static_cast<const T*>(c.b) + e * c.b_group + column0 * c.b_row;
  Sums<C, kTile> sums;
  sums.add_products(
      c.k, (c.a_col == 1 ? 1 : 0) | (c.b_col == 1 ? 2 : 0),
      [&](int i, int64_t l) { return i < rows ? C(cuda::widen(x[i * c.a_row + l * c.a_col])) : C(0); },
      [&](int64_t l, int j) { return column0 + j < c.m ? C(cuda::widen(w[j * c.b_row + l * c.b_col])) : C(0); });
  sums.store(static_cast<T*>(c.y) + first * c.y_row + column0, rows, c.m - column0, c.y_row);
}

template <class T, int kTile>
__global__ void __launch_bounds__(kThreads) outer_kernel(GroupedCall c) {
  using C = compute_t<T>;
  const int64_t e = blockIdx.z, row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  const int64_t first = c.offsets[e], rows = c.offsets[e + 1] - first;
  const T* g = static_cast<const T*>(c.a) + first * c.a_row + row0 * c.a_col;
  const T* x = static_cast<const T*>(c.b) + first * c.b_row + column0 * c.b_col;
  Sums<C, kTile> sums;
  sums.add_products(
      rows, (c.a_row == 1 ? 1 : 0) | (c.b_row == 1 ? 2 : 0),
      [&](int i, int64_t l) { return row0 + i < c.m ? C(cuda::widen(g[l * c.a_row + i * c.a_col])) : C(0); },
      [&](int64_t l, int j) { return column0 + j < c.k ? C(cuda::widen(x[l * c.b_row + j * c.b_col])) : C(0); });
  sums.store(static_cast<T*>(c.y) + (e * c.m + row0) * c.y_row + column0, c.m - row0, c.k - column0, c.y_row);
}

// Runs f<T, tile>: of f64, and where large tiles would leave multiprocessors without work, small ones.
template <class F>
void with_tile(DType t, const char* op, int64_t results, F&& f) {
  dispatch_floats(t, op, [&]<class T>() {
    constexpr int64_t kEnough = 132 * 128 * 128;
    if constexpr (!std::is_same_v<T, double>)
      if (results >= kEnough) return f.template operator()<T, 128>();
    f.template operator()<T, 64>();
  });
}

}  // namespace

void grouped_linear_cuda(const GroupedCall& c) {
  if (c.n == 0 || c.m == 0 || cuda::grouped_tiles(c, false)) return;
  with_tile(c.dtype, "grouped_linear", c.n * c.m, [&]<class T, int kTile>() {
    const dim3 grid(cuda::blocks_for(c.n, kTile) + static_cast<unsigned>(c.groups), cuda::blocks_for(c.m, kTile));
    linear_kernel<T, kTile><<<grid, kThreads, 0, cuda::stream()>>>(c);
  });
}

void grouped_outer_cuda(const GroupedCall& c) {
  if (c.groups == 0 || c.m == 0 || c.k == 0 || cuda::grouped_tiles(c, true)) return;
  with_tile(c.dtype, "grouped_outer", c.groups * c.m * c.k, [&]<class T, int kTile>() {
    const dim3 grid(cuda::blocks_for(c.k, kTile), cuda::blocks_for(c.m, kTile), static_cast<unsigned>(c.groups));
    outer_kernel<T, kTile><<<grid, kThreads, 0, cuda::stream()>>>(c);
  });
}

}  // namespace strata
