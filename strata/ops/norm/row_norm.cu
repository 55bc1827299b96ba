// Layer norm and RMS norm on a CUDA device: one pass over memory where a row fits in its threads' registers.

#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

// Some of a row's elements: their sum, the squares of their distances from their mean, and how many they are.
template <class C>
struct Moments {
  C sum, squares, count;
};

// The mean of a held row and the mean of the squares about it, with one barrier: each warp takes its own mean first.
// value(k) is vector k, widened.
template <class C, int V, int kHeld, class F, class Renew>
__device__ __forceinline__ PairOf<C> row_moments(int64_t n, F&& value, Renew&& renew, Moments<C>* shared) {
  C sum = 0;
  for_row<V, kHeld>(n, [&](int64_t, int k) {
    const Vec<C, V> v = value(k);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += v.v[j];
  });
  sum = warp_reduce(sum, Sum());
  int count = static_cast<int>(n);
  if (blockDim.x > kWarp) {
    count = 0;
    const int first = static_cast<int>(threadIdx.x / kWarp) * kWarp * V, step = static_cast<int>(blockDim.x) * V;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) count += min(max(static_cast<int>(n) - first - k * step, 0), kWarp * V);
  }
  const C mean = count > 0 ? sum / static_cast<C>(count) : C(0);
  renew();
  C squares = 0;
  for_row<V, kHeld>(n, [&](int64_t, int k) {
    const Vec<C, V> v = value(k);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (v.v[j] - mean) * (v.v[j] - mean);
  });
  squares = warp_reduce(squares, Sum());
  if (blockDim.x == kWarp) return {mean, squares / static_cast<C>(n)};
  const int warps = static_cast<int>(blockDim.x / kWarp), first = static_cast<int>(threadIdx.y) * warps;
  if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = {sum, squares, static_cast<C>(count)};
  __syncthreads();
  C all = 0;
  for (int w = 0; w < warps; ++w) all += shared[first + w].sum;
  all /= static_cast<C>(n);
  squares = 0;
  for (int w = 0; w < warps; ++w) {
    const Moments<C> m = shared[first + w];
    const C away = m.count > 0 ? m.sum / m.count - all : C(0);
    squares += m.squares + m.count * away * away;
  }
  return {all, squares / static_cast<C>(n)};
}

// kAdd: there may be a residual; what is held then is the sum, not yet rounded.
template <class T, class A, int V, int kHeld, bool kAdd>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(const RowNorm c) {
  using C = compute_t<T>;
  using Stored = std::conditional_t<kAdd, C, T>;
  __shared__ Moments<C> moments[kMostRowThreads / kWarp];
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.n : 0;
  const T *x = static_cast<const T*>(c.x) + r * c.n, *residual = static_cast<const T*>(c.residual);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  Kept<Vec<Stored, V>, kHeld == 0 ? 1 : kHeld> kept;
  const auto read = [&](int64_t i) {
    if constexpr (kAdd) {
      Vec<C, V> v = load_wide<C, V>(x + i);
      if (residual != nullptr) {
        const Vec<C, V> more = load_wide<C, V>(residual + r * c.n + i);
#pragma unroll
        for (int j = 0; j < V; ++j) v.v[j] += more.v[j];
      }
      return v;
    } else {
      return load_vec<V>(x + i);
    }
  };
  const auto at = [&](int64_t i, int k) {
    if constexpr (kHeld > 0)
      return kept.v[k];
    else
      return read(i);
  };
  const auto store_sum = [&](int64_t i, const Vec<Stored, V>& v) {
    if constexpr (kAdd)
      if (c.sum != nullptr) store_narrow(static_cast<T*>(c.sum) + r * c.n + i, v);
  };
  C mean = 0, square = 0;
  if constexpr (kHeld > 0) {
    // All loads are under way before anything is stored.
    for_row<V, kHeld>(n, [&](int64_t i, int k) { kept.v[k] = read(i); });
    for_row<V, kHeld>(n, [&](int64_t i, int k) { store_sum(i, kept.v[k]); });
    if (c.rms) {
      for_row<V, kHeld>(n, [&](int64_t, int k) {
        const auto v = widen_all(kept.v[k]);
#pragma unroll
        for (int j = 0; j < V; ++j) square += v.v[j] * v.v[j];
      });
      square = row_reduce(square, Sum(), shared, true) / static_cast<C>(c.n);
    } else {
      const PairOf<C> m = row_moments<C, V, kHeld>(
          n, [&](int k) { return widen_all(kept.v[k]); }, [&] { kept.renew(); }, moments);
      mean = m.a, square = m.b;
    }
  } else {
    if (!c.rms || c.sum != nullptr)
      for_row<V, 0>(n, [&](int64_t i, int) {
        const auto v = read(i);
#pragma unroll
        for (int j = 0; j < V; ++j) mean += widen(v.v[j]);
        store_sum(i, v);
      });
    mean = c.rms ? C(0) : row_reduce(mean, Sum(), shared) / static_cast<C>(c.n);
    for_row<V, 0>(n, [&](int64_t i, int) {
      const auto v = read(i);
#pragma unroll
      for (int j = 0; j < V; ++j) square += (widen(v.v[j]) - mean) * (widen(v.v[j]) - mean);
    });
    square = row_reduce(square, Sum(), shared, true) / static_cast<C>(c.n);
  }
  kept.renew();
  const C rstd = C(1) / sqrt(square + static_cast<C>(c.eps));
  if (threadIdx.x == 0 && n > 0) {
    if (c.mean != nullptr) static_cast<C*>(c.mean)[r] = mean;
    if (c.rstd != nullptr) static_cast<C*>(c.rstd)[r] = rstd;
  }
  for_row<V, kHeld>(n, [&](int64_t i, int k) {
    Vec<C, V> v = widen_all(at(i, k));
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean) * rstd;
    if (w != nullptr) {
      const Vec<C, V> wv = load_wide<C, V>(w + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] *= wv.v[j];
    }
    if (b != nullptr) {
      const Vec<C, V> bv = load_wide<C, V>(b + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] += bv.v[j];
    }
    store_narrow(static_cast<T*>(c.y) + r * c.n + i, v);
  });
}

}  // namespace

void row_norm_cuda(const RowNorm& c) {
  if (c.rows * c.n == 0) return;
  dispatch_types(c, [&]<class T, class A>() {
    const RowLaunch l = row_launch<T>(c.rows, c.n, all_aligned(c.x, c.weight, c.bias, c.residual, c.y, c.sum));
    dispatch_rows<T>(l, [&](auto v, auto held) {
      constexpr int V = decltype(v)::value, kHeld = decltype(held)::value;
      // Rows that are read in single elements have no kernel of their own for want of a residual.
      if (V == 1 || c.residual != nullptr)
        forward_kernel<T, A, V, kHeld, true><<<l.blocks, l.threads, 0, stream()>>>(c);
      else
        forward_kernel<T, A, V, kHeld, V == 1><<<l.blocks, l.threads, 0, stream()>>>(c);
    });
  });
}

}  // namespace strata
