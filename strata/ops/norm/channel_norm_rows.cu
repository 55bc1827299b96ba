// Group normalisation of [batch, channels] on a CUDA device: a group's channels lie side by side, so a statistic is
// that of a row.

#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

// The group's part of a weight or a bias that may be null.
template <class C, int V, class A>
__device__ __forceinline__ Vec<C, V> of_channels(const void* p, int64_t i, C otherwise) {
  Vec<C, V> v;
  if (p != nullptr) return load_wide<C, V>(static_cast<const A*>(p) + i);
#pragma unroll
  for (int j = 0; j < V; ++j) v.v[j] = otherwise;
  return v;
}

template <class T, class A, int V>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(const ChannelNorm c) {
  using C = compute_t<T>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t per = c.channels / c.groups, s = this_row(), n = s < c.batch * c.groups ? per : 0;
  const int64_t channel = s % c.groups * per;
  const T* x = static_cast<const T*>(c.x) + s * per;
  const C count = static_cast<C>(per);
  C sum = 0, squares = 0;
  for_row<V, 0>(n, [&](int64_t i, int) {
    const Vec<C, V> v = load_wide<C, V>(x + i);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += v.v[j];
  });
  const C mean = row_reduce(sum, Sum(), shared) / count;
  for_row<V, 0>(n, [&](int64_t i, int) {
    const Vec<C, V> v = load_wide<C, V>(x + i);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (v.v[j] - mean) * (v.v[j] - mean);
  });
  squares = row_reduce(squares, Sum(), shared, true);
  const C rstd = C(1) / sqrt(squares / count + static_cast<C>(c.eps));
  if (threadIdx.x == 0 && n > 0) {
    static_cast<C*>(c.mean)[s] = mean;
    static_cast<C*>(c.rstd)[s] = rstd;
  }
  for_row<V, 0>(n, [&](int64_t i, int) {
    Vec<C, V> v = load_wide<C, V>(x + i);
    const Vec<C, V> w = of_channels<C, V, A>(c.weight, channel + i, 1),
                    b = of_channels<C, V, A>(c.bias, channel + i, 0);
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean) * rstd * w.v[j] + b.v[j];
    store_narrow(static_cast<T*>(c.y) + s * per + i, v);
  });
}

// grad_x = rstd (g w - the mean of g w - xhat the mean of g w xhat).
template <class T, class A, int V>
__global__ void __launch_bounds__(kMostRowThreads) gradient_kernel(const ChannelNormBackward c) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[kMostRowThreads / kWarp];
  const int64_t per = c.channels / c.groups, s = this_row(), n = s < c.batch * c.groups ? per : 0;
  const int64_t channel = s % c.groups * per;
  const T *x = static_cast<const T*>(c.x) + s * per, *g = static_cast<const T*>(c.grad_y) + s * per;
  const C mean = n > 0 ? static_cast<const C*>(c.mean)[s] : C(0),
          rstd = n > 0 ? static_cast<const C*>(c.rstd)[s] : C(0);
  PairOf<C> sums{0, 0};
  for_row<V, 0>(n, [&](int64_t i, int) {
    const Vec<C, V> xv = load_wide<C, V>(x + i), gv = load_wide<C, V>(g + i),
                    w = of_channels<C, V, A>(c.weight, channel + i, 1);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C gw = gv.v[j] * w.v[j];
      sums.a += gw;
      sums.b += gw * (xv.v[j] - mean);
    }
  });
  sums = row_reduce(sums, SumPairs(), shared, true);
  const C count = static_cast<C>(per), a = sums.a / count * rstd, b = sums.b / count * rstd * rstd * rstd;
  for_row<V, 0>(n, [&](int64_t i, int) {
    const Vec<C, V> xv = load_wide<C, V>(x + i), w = of_channels<C, V, A>(c.weight, channel + i, 1);
    Vec<C, V> gv = load_wide<C, V>(g + i);
#pragma unroll
    for (int j = 0; j < V; ++j) gv.v[j] = gv.v[j] * w.v[j] * rstd - a - (xv.v[j] - mean) * b;
    store_narrow(static_cast<T*>(c.grad_x) + s * per + i, gv);
  });
}

constexpr int kDown = 16, kMostParts = 64;

// A thread's channel of every kDown-th item of a stretch; block y's sums, partial [parts][2][channels], go to the
// gradients themselves where there is one part.
template <class T, class A>
__global__ void __launch_bounds__(kWarp* kDown)
    weights_kernel(const ChannelNormBackward c, compute_t<T>* partial, int64_t length) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[kDown][kWarp];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x, begin = blockIdx.y * length;
  const int64_t end = min(begin + length, c.batch), per = c.channels / c.groups;
  PairOf<C> s{0, 0};
  if (channel < c.channels)
    for (int64_t item = begin + threadIdx.y; item < end; item += kDown) {
      const int64_t at = item * c.channels + channel, set = item * c.groups + channel / per;
      const C g = widen(static_cast<const T*>(c.grad_y)[at]);
      s.a += g * (widen(static_cast<const T*>(c.x)[at]) - static_cast<const C*>(c.mean)[set]) *
             static_cast<const C*>(c.rstd)[set];
      s.b += g;
    }
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= c.channels) return;
  for (int k = 1; k < kDown; ++k) s = SumPairs()(s, shared[k][threadIdx.x]);
  if (partial != nullptr) {
    partial[blockIdx.y * 2 * c.channels + channel] = s.a;
    partial[(blockIdx.y * 2 + 1) * c.channels + channel] = s.b;
    return;
  }
  if (c.grad_weight != nullptr) static_cast<A*>(c.grad_weight)[channel] = narrow<A>(s.a);
  if (c.grad_bias != nullptr) static_cast<A*>(c.grad_bias)[channel] = narrow<A>(s.b);
}

template <class A, class C>
__global__ void __launch_bounds__(256) parts_kernel(const ChannelNormBackward c, const C* partial, int64_t parts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= 2 * c.channels) return;
  C s = 0;
  for (int64_t p = 0; p < parts; ++p) s += partial[p * 2 * c.channels + i];
  void* to = i < c.channels ? c.grad_weight : c.grad_bias;
  if (to != nullptr) static_cast<A*>(to)[i < c.channels ? i : i - c.channels] = narrow<A>(s);
}

}  // namespace

void group_rows_cuda(const ChannelNorm& c) {
  dispatch_types(c, [&]<class T, class A>() {
    const RowLaunch l =
        row_launch<T>(c.batch * c.groups, c.channels / c.groups, all_aligned(c.x, c.y, c.weight, c.bias));
    const auto kernel = l.vectors ? forward_kernel<T, A, kVec<T>> : forward_kernel<T, A, 1>;
    kernel<<<l.blocks, l.threads, 0, stream()>>>(c);
  });
}

void group_rows_backward_cuda(const ChannelNormBackward& c) {
  dispatch_types(c, [&]<class T, class A>() {
    using C = compute_t<T>;
    const RowLaunch l =
        row_launch<T>(c.batch * c.groups, c.channels / c.groups, all_aligned(c.x, c.grad_y, c.grad_x, c.weight));
    const auto kernel = l.vectors ? gradient_kernel<T, A, kVec<T>> : gradient_kernel<T, A, 1>;
    kernel<<<l.blocks, l.threads, 0, stream()>>>(c);
    if (c.grad_weight == nullptr && c.grad_bias == nullptr) return;
    const int64_t length = std::max<int64_t>((c.batch + kMostParts - 1) / kMostParts, 4 * kDown);
    const int64_t parts = (c.batch + length - 1) / length;
    const Tensor workspace = parts > 1 ? make_workspace<C>(parts * 2 * c.channels) : Tensor();
    C* partial = parts > 1 ? static_cast<C*>(workspace.raw_data()) : nullptr;
    weights_kernel<T, A>
        <<<dim3(blocks_for(c.channels, kWarp), static_cast<unsigned>(parts)), dim3(kWarp, kDown), 0, stream()>>>(
            c, partial, length);
    if (parts > 1) parts_kernel<A, C><<<blocks_for(2 * c.channels, 256), 256, 0, stream()>>>(c, partial, parts);
  });
}

}  // namespace strata
