// Distances of all pairs of rows, and their gradient, on a CUDA device.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/pdist_kernel.h"

namespace strata {
namespace {

// Where the pair of rows i < j of n stands.
__device__ __forceinline__ int64_t pair_at(int64_t i, int64_t j, int64_t n) {
  return i * (2 * n - i - 1) / 2 + j - i - 1;
}

// Which norm: p = 1, p = 2, or another p above 0.
enum class Norm { one, two, any };
Norm norm_of(double p) {
  return p == 1 ? Norm::one : p == 2 ? Norm::two : Norm::any;
}

// v^p for v > 0; 0 for v = 0, also where p is negative: nothing flows there. Common powers need no logarithm.
template <class C>
__device__ __forceinline__ C power(C v, C p) {
  if (v == 0) return 0;
  if (p == 3) return v * v * v;
  if (p == 2) return v * v;
  if (p == C(1.5)) return v * sqrt(v);
  if (p == C(0.5)) return sqrt(v);
  if (p == C(-0.5)) return 1 / sqrt(v);
  return pow(v, p);
}

constexpr int kSide = 16, kDepth = 32;

// A block has kSide x kSide pairs, a thread one of them; the rows' next kDepth elements stand in shared memory. Block b
// counts the squares of pairs that lie on or above the diagonal, row by row.
template <class T, Norm kNorm>
__global__ void __launch_bounds__(kSide* kSide)
    distances(T* y, const T* x, compute_t<T> p, int64_t n, int64_t m, int64_t squares) {
  using C = compute_t<T>;
  __shared__ C first[kSide][kDepth + 1], second[kSide][kDepth + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y), thread = ty * kSide + tx;
  // The row of squares in which number b stands: rows before r hold r squares - r (r - 1) / 2.
  const int64_t b = blockIdx.x;
  int64_t row = 0, high = squares - 1;
  while (row < high) {
    const int64_t middle = (row + high + 1) / 2;
    if (middle * squares - middle * (middle - 1) / 2 <= b)
      row = middle;
    else
      high = middle - 1;
  }
  const int64_t column = row + b - (row * squares - row * (row - 1) / 2);
  const int64_t i0 = row * kSide, j0 = column * kSide, i = i0 + ty, j = j0 + tx;
  C sum = 0;
  for (int64_t from = 0; from < m; from += kDepth) {
    for (int e = thread; e < kSide * kDepth; e += kSide * kSide) {
      const int r = e / kDepth, k = e % kDepth;
      const bool inside = from + k < m;
      first[r][k] = inside && i0 + r < n ? static_cast<C>(cuda::widen(x[(i0 + r) * m + from + k])) : C(0);
      second[r][k] = inside && j0 + r < n ? static_cast<C>(cuda::widen(x[(j0 + r) * m + from + k])) : C(0);
    }
    __syncthreads();
    C part = 0;  // sums of sums: the error grows with the number of both
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const C d = first[ty][k] - second[tx][k], size = d < 0 ? -d : d;
      part += kNorm == Norm::two ? d * d : kNorm == Norm::one ? size : power(size, p);
    }
    sum += part;
    __syncthreads();
  }
  if (i >= j || j >= n) return;
  const C length = kNorm == Norm::two ? static_cast<C>(sqrt(sum)) : kNorm == Norm::one ? sum : pow(sum, 1 / p);
  y[pair_at(i, j, n)] = cuda::narrow<T>(length);
}

constexpr int kColumns = 32, kRows = 8, kStretch = 64;

// A thread has an element of gx and goes over all other rows, in their order; what multiplies the differences of the
// block's rows from the next kStretch stands in shared memory. Blocks go along x's columns first.
template <class T, Norm kNorm>
__global__ void __launch_bounds__(kColumns* kRows)
    gradient(T* gx, const T* g, const T* x, const T* y, compute_t<T> p, int64_t n, int64_t m, int64_t across) {
  using C = compute_t<T>;
  __shared__ C weight[kRows][kStretch];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y), thread = ty * kColumns + tx;
  const int64_t i0 = static_cast<int64_t>(blockIdx.x) / across * kRows, i = i0 + ty;
  const int64_t k = static_cast<int64_t>(blockIdx.x) % across * kColumns + tx;
  const bool mine = i < n && k < m;
  const C own = mine ? static_cast<C>(cuda::widen(x[i * m + k])) : C(0);
  C sum = 0;
  for (int64_t from = 0; from < n; from += kStretch) {
    for (int e = thread; e < kRows * kStretch; e += kColumns * kRows) {
      const int64_t r = i0 + e / kStretch, j = from + e % kStretch;
      C w = 0;
      if (r < n && j < n && r != j) {
        const int64_t at = r < j ? pair_at(r, j, n) : pair_at(j, r, n);
        const C d = static_cast<C>(cuda::widen(y[at]));
        const C by = kNorm == Norm::two ? d : kNorm == Norm::one ? C(1) : pow(d, p - 1);
        if (d != 0) w = static_cast<C>(cuda::widen(g[at])) / by;
      }
      weight[e / kStretch][e % kStretch] = w;
    }
    __syncthreads();
    if (mine) {
      const int64_t end = n - from < kStretch ? n - from : kStretch;
      C part = 0;
#pragma unroll 8
      for (int j = 0; j < end; ++j) {
        const C w = weight[ty][j], d = own - static_cast<C>(cuda::widen(x[(from + j) * m + k]));
        if constexpr (kNorm == Norm::two) {
          part += w == 0 ? C(0) : w * d;
        } else {
          const C one = kNorm == Norm::one || w == 0 ? w : w * power(d < 0 ? -d : d, p - 1);
          part += d > 0 ? one : d < 0 ? -one : C(0);
        }
      }
      sum += part;
    }
    __syncthreads();
  }
  if (mine) gx[i * m + k] = cuda::narrow<T>(sum);
}

// Runs `body` on y, or on a row-major stand-in that is then copied to y.
template <class Body>
void into_dense(Tensor& y, Body&& body) {
  if (y.is_contiguous()) return body(y);
  Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  body(dense);
  copy_elements(y, dense);
}

}  // namespace

void pdist_cuda(Tensor& y, const Tensor& x, double p) {
  if (y.numel() == 0) return;
  const Tensor from = contiguous(x);
  const int64_t n = x.size(0), m = x.size(1), squares = (n + kSide - 1) / kSide;
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(x.dtype(), "pdist", [&]<class T>() {
      const Norm norm = norm_of(p);
      const auto kernel = norm == Norm::two   ? distances<T, Norm::two>
                          : norm == Norm::one ? distances<T, Norm::one>
                                              : distances<T, Norm::any>;
      kernel<<<static_cast<unsigned>(squares * (squares + 1) / 2), dim3(kSide, kSide), 0, cuda::stream()>>>(
          static_cast<T*>(to.raw_data()), static_cast<const T*>(from.raw_data()), static_cast<compute_t<T>>(p), n, m,
          squares);
    });
  });
}

void pdist_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& y, double p) {
  if (gx.numel() == 0) return;
  const Tensor from = contiguous(x), weights = contiguous(g), lengths = contiguous(y);
  const int64_t n = x.size(0), m = x.size(1), across = (m + kColumns - 1) / kColumns;
  into_dense(gx, [&](Tensor& to) {
    dispatch_floats(x.dtype(), "pdist", [&]<class T>() {
      const Norm norm = norm_of(p);
      const auto kernel = norm == Norm::two   ? gradient<T, Norm::two>
                          : norm == Norm::one ? gradient<T, Norm::one>
                                              : gradient<T, Norm::any>;
      kernel<<<static_cast<unsigned>(across * ((n + kRows - 1) / kRows)), dim3(kColumns, kRows), 0, cuda::stream()>>>(
          static_cast<T*>(to.raw_data()), static_cast<const T*>(weights.raw_data()),
          static_cast<const T*>(from.raw_data()), static_cast<const T*>(lengths.raw_data()),
          static_cast<compute_t<T>>(p), n, m, across);
    });
  });
}

}  // namespace strata
