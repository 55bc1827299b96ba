// Softmax on a CUDA device, over rows and over columns.

#include "strata/cuda/rows.cuh"
#include "strata/ops/softmax/softmax_kernel.h"

namespace strata {
namespace {
using namespace cuda;

template <class T, int V, bool kHold>
__global__ void __launch_bounds__(kMostRowThreads) forward_rows(bool log, const T* x, T* y, int64_t rows, int64_t n) {
  using C = compute_t<T>;
  __shared__ ExpSum<C> shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), m = r < rows ? n : 0;
  const RowOf<T, V, kHold> row(x + r * n, m);
  ExpSum<C> s{-INFINITY, 0};
  if constexpr (kHold) {
    for_row<V, kHold>(m, [&](int64_t i, int k) {
      const auto v = row.at(i, k);
#pragma unroll
      for (int j = 0; j < V; ++j) s.top = Max()(s.top, widen(v.v[j]));
    });
    if (s.top != -INFINITY)
      for_row<V, kHold>(m, [&](int64_t i, int k) {
        const auto v = row.at(i, k);
#pragma unroll
        for (int j = 0; j < V; ++j) s.sum += exp_for<T>(widen(v.v[j]) - s.top);
      });
  } else {
    for_row<V, kHold>(m, [&](int64_t i, int k) { add_exponentials(s, row.at(i, k)); });
  }
  s = row_reduce(s, AddExpSums(), shared);
  // Of a row of -inf alone, what the formula gives: NaN.
  const C scale = log ? ::log(s.sum) : C(1) / s.sum;
  T* to = y + r * n;
  for_row<V, kHold>(m, [&](int64_t i, int k) {
    const auto v = row.at(i, k);
    Vec<T, V> e;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C d = widen(v.v[j]) - s.top;
      e.v[j] = narrow<T>(log ? d - scale : exp_for<T>(d) * scale);
    }
    store_vec(to + i, e);
  });
}

// Vectors of each of two rows that a thread may hold.
template <int V>
constexpr int kHeldTwice = V == 1 ? 8 : 4;

template <class T, int V, bool kHold>
__global__ void __launch_bounds__(kMostRowThreads)
    backward_rows(bool log, const T* gy, const T* y, T* gx, int64_t rows, int64_t n) {
  using C = compute_t<T>;
  constexpr int kMost = kHeldTwice<V>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), m = r < rows ? n : 0;
  const RowOf<T, V, kHold, kMost> g_row(gy + r * n, m), y_row(y + r * n, m);
  C sum = 0;
  for_row<V, kHold, kMost>(m, [&](int64_t i, int k) {
    const auto g = g_row.at(i, k), v = y_row.at(i, k);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += log ? widen(g.v[j]) : widen(g.v[j]) * widen(v.v[j]);
  });
  sum = row_reduce(sum, Sum(), shared);
  T* to = gx + r * n;
  for_row<V, kHold, kMost>(m, [&](int64_t i, int k) {
    const auto g = g_row.at(i, k), v = y_row.at(i, k);
    Vec<T, V> e;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C gv = widen(g.v[j]), yv = widen(v.v[j]);
      e.v[j] = narrow<T>(log ? gv - exp_for<T>(yv) * sum : yv * (gv - sum));
    }
    store_vec(to + i, e);
  });
}

// Columns of all [n, inner] matrices side by side; blocks are [threads down a column][columns].
constexpr int kAcross = 32, kDown = 8;

template <class V, class Op>
__device__ __forceinline__ V combine_down(V v, Op op, V (&shared)[kDown][kAcross]) {
  shared[threadIdx.y][threadIdx.x] = v;
  __syncthreads();
  v = shared[0][threadIdx.x];
#pragma unroll
  for (int k = 1; k < kDown; ++k) v = op(v, shared[k][threadIdx.x]);
  return v;
}

template <class T>
__global__ void __launch_bounds__(kAcross* kDown)
    forward_columns(bool log, const T* x, T* y, int64_t columns, int64_t n, int64_t inner) {
  using C = compute_t<T>;
  __shared__ ExpSum<C> shared[kDown][kAcross];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x, m = c < columns ? n : 0;
  const int64_t first = c / inner * n * inner + c % inner;
  ExpSum<C> s{-INFINITY, 0};
  for (int64_t i = threadIdx.y; i < m; i += kDown) add_exponentials(s, load_vec<1>(x + first + i * inner));
  s = combine_down(s, AddExpSums(), shared);
  const C scale = log ? ::log(s.sum) : C(1) / s.sum;
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const C d = widen(x[first + i * inner]) - s.top;
    y[first + i * inner] = narrow<T>(log ? d - scale : exp_for<T>(d) * scale);
  }
}

template <class T>
__global__ void __launch_bounds__(kAcross* kDown)
    backward_columns(bool log, const T* gy, const T* y, T* gx, int64_t columns, int64_t n, int64_t inner) {
  using C = compute_t<T>;
  __shared__ C shared[kDown][kAcross];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x, m = c < columns ? n : 0;
  const int64_t first = c / inner * n * inner + c % inner;
  C sum = 0;
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const C g = widen(gy[first + i * inner]);
    sum += log ? g : g * widen(y[first + i * inner]);
  }
  sum = combine_down(sum, Sum(), shared);
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const int64_t at = first + i * inner;
    const C g = widen(gy[at]), v = widen(y[at]);
    gx[at] = narrow<T>(log ? g - exp_for<T>(v) * sum : v * (g - sum));
  }
}
}  // namespace

void softmax_forward_cuda(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner) {
  if (outer * n * inner == 0) return;
  dispatch_floats(t, "softmax", [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (inner > 1) {
      forward_columns<T><<<blocks_for(outer * inner, kAcross), dim3(kAcross, kDown), 0, stream()>>>(
          log, from, to, outer * inner, n, inner);
      return;
    }
    const RowLaunch l = row_launch<T>(outer, n, aligned16(x) && aligned16(y));
    dispatch_rows<T>(l, [&](auto v, auto held) {
      forward_rows<T, decltype(v)::value, decltype(held)::value>
          <<<l.blocks, l.threads, 0, stream()>>>(log, from, to, outer, n);
    });
  });
}

void softmax_backward_cuda(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                           int64_t inner) {
  if (outer * n * inner == 0) return;
  dispatch_floats(t, "softmax_backward", [&]<class T>() {
    const T *g = static_cast<const T*>(gy), *p = static_cast<const T*>(y);
    T* to = static_cast<T*>(gx);
    if (inner > 1) {
      backward_columns<T><<<blocks_for(outer * inner, kAcross), dim3(kAcross, kDown), 0, stream()>>>(
          log, g, p, to, outer * inner, n, inner);
      return;
    }
    const bool aligned = aligned16(gy) && aligned16(y) && aligned16(gx);
    const int held = aligned && n % kVec<T> == 0 ? kHeldTwice<kVec<T>> : kHeldTwice<1>;
    const RowLaunch l = row_launch<T>(outer, n, aligned, 4, held);
    dispatch_rows<T>(l, [&](auto v, auto held) {
      backward_rows<T, decltype(v)::value, decltype(held)::value>
          <<<l.blocks, l.threads, 0, stream()>>>(log, g, p, to, outer, n);
    });
  });
}

}  // namespace strata
