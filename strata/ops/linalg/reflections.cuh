#pragma once
// Householder's reflections of matrices that fit into the shared memory of a block, which has one of them: their
// vectors, R, and the first columns of Q, without a launch for each panel. Runs on the processor in tests.

#include <cmath>
#include <cstdint>

#include "strata/cuda/tile/shared_tile.cuh"

namespace strata::linalg {

/// What a launch is to do with row-major matrices [m, n], one a block; what is null is not wanted.
template <class T>
struct Reflections {
  const T* a;
  const T* given;  // [k]: tau, a having the vectors already; null: they are found
  T* vectors;      // [m, n], with R in the upper triangle
  T* tau;          // [k]
  T* r;            // [rows_of_r, n]
  T* q;            // [m, columns]
  int m, n, k, rows_of_r, columns;
};

/// Between columns in shared memory: odd, so that rows lie in different banks as columns do.
inline constexpr int pitch_of(int m) {
  return m | 1;
}
/// Bytes of shared memory for blocks of `warps` warps.
template <class T>
constexpr int64_t reflections_bytes(int64_t m, int64_t n, int64_t warps) {
  return ((m | 1) * (n + warps) + (m < n ? m : n)) * static_cast<int64_t>(sizeof(T));
}

/// The larger; a NaN stays.
struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

/// Each column belongs to a warp. All warps find a step's vector for themselves, from the column that the step before
/// has finished: one barrier a step. `Where` keeps a test's kernel apart from the library's.
template <class T, class Where = void>
__global__ void __launch_bounds__(512) reflections_kernel(Reflections<T> job) {
  const int m = job.m, n = job.n, k = job.k, pitch = pitch_of(m), lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  T* const a = reinterpret_cast<T*>(cuda::tile::shared_memory());
  T* const mine = a + n * pitch + warp * pitch;  // a column of Q
  T* const tau = a + (n + warps) * pitch;
  const int64_t matrix = blockIdx.x, size = static_cast<int64_t>(m) * n;
  for (int e = static_cast<int>(threadIdx.x); e < m * n; e += static_cast<int>(blockDim.x))
    a[e % n * pitch + e / n] = job.a[matrix * size + e];
  if (job.given)
    for (int i = static_cast<int>(threadIdx.x); i < k; i += static_cast<int>(blockDim.x))
      tau[i] = job.given[matrix * k + i];
  __syncthreads();

  for (int c = 0; c < k && !job.given; ++c) {
    T* const x = a + c * pitch;
    const T head = x[c];
    T most = 0;
    for (int i = c + 1 + lane; i < m; i += 32) most = Largest()(most, x[i] < T(0) ? -x[i] : x[i]);
    most = cuda::warp_reduce<32>(most, Largest());
    // LAPACK's: nothing to reflect where the rest is 0. Divided by the largest, squares neither overflow nor vanish.
    T scale = 0, diagonal = head, by = 0;
    if (!(most == T(0))) {
      const T size_of_head = head < T(0) ? -head : head, unit = Largest()(size_of_head, most);
      T squares = 0;
      for (int i = c + 1 + lane; i < m; i += 32) squares += x[i] / unit * (x[i] / unit);
      squares = cuda::warp_reduce<32>(squares, cuda::Sum()) + head / unit * (head / unit);
      const T length = unit * std::sqrt(squares);
      diagonal = head < T(0) ? length : -length;
      scale = (diagonal - head) / diagonal;
      by = T(1) / (head - diagonal);
    }
    for (int j = c + 1 + warp; j < n; j += warps) {
      T* const y = a + j * pitch;
      const T first = y[c];
      T sum = 0;
      for (int i = c + 1 + lane; i < m; i += 32) sum += x[i] * by * y[i];
      const T w = scale * (first + cuda::warp_reduce<32>(sum, cuda::Sum()));
      __syncwarp();  // all have read y[c]
      for (int i = c + 1 + lane; i < m; i += 32) y[i] -= w * (x[i] * by);
      if (lane == 0) y[c] = first - w;
    }
    __syncthreads();  // column c is read no more by others, and column c + 1 is finished
    if (warp != 0) continue;
    for (int i = c + 1 + lane; i < m; i += 32) x[i] *= by;
    if (lane == 0) x[c] = diagonal, tau[c] = scale;
  }
  __syncthreads();

  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  if (job.vectors)
    for (int e = thread; e < m * n; e += threads) job.vectors[matrix * size + e] = a[e % n * pitch + e / n];
  if (job.tau)
    for (int i = thread; i < k; i += threads) job.tau[matrix * k + i] = tau[i];
  if (job.r) {
    const int all = job.rows_of_r * n;
    for (int e = thread; e < all; e += threads)
      job.r[matrix * all + e] = e / n <= e % n ? a[e % n * pitch + e / n] : T(0);
  }
  if (!job.q) return;
  T* const q = job.q + matrix * m * job.columns;
  for (int j = warp; j < job.columns; j += warps) {
    for (int i = lane; i < m; i += 32) mine[i] = i == j ? T(1) : T(0);
    __syncwarp();
    // Reflections beyond j leave the unit vector as it is.
    for (int c = j < k ? j : k - 1; c >= 0; --c) {
      const T* const x = a + c * pitch;
      const T first = mine[c];
      T sum = 0;
      for (int i = c + 1 + lane; i < m; i += 32) sum += x[i] * mine[i];
      const T w = tau[c] * (first + cuda::warp_reduce<32>(sum, cuda::Sum()));
      __syncwarp();
      for (int i = c + 1 + lane; i < m; i += 32) mine[i] -= w * x[i];
      if (lane == 0) mine[c] = first - w;
      __syncwarp();
    }
    for (int i = lane; i < m; i += 32) q[static_cast<int64_t>(i) * job.columns + j] = mine[i];
    __syncwarp();
  }
}

}  // namespace strata::linalg
