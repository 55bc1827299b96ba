// Group and batch normalisation on a CUDA device. First each channel of each item is reduced as a row, then a warp
// combines the rows of each statistic in their order, then the rows are walked again.

#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

// Which statistic a row [item, channel] counts for, and which rows a statistic has.
struct Sets {
  int64_t batch, channels, inner, groups;
  bool across_batch;
  template <class Call>
  explicit Sets(const Call& c)
      : batch(c.batch), channels(c.channels), inner(c.inner), groups(c.groups), across_batch(c.across_batch) {}

  int64_t rows() const { return batch * channels; }
  int64_t count() const { return across_batch ? groups : batch * groups; }
  __device__ int64_t per() const { return channels / groups; }
  __device__ int64_t set_of(int64_t row) const {
    const int64_t group = row % channels / per();
    return across_batch ? group : row / channels * groups + group;
  }
  __device__ int64_t size() const { return per() * (across_batch ? batch : 1); }
  __device__ int64_t row(int64_t set, int64_t e) const {
    const int64_t item = across_batch ? e / per() : set / groups;
    return item * channels + set % groups * per() + e % per();
  }
};

// {mean, sum of squared differences from it} of each row.
template <class T, int V>
__global__ void __launch_bounds__(kMostRowThreads)
    moments_kernel(const T* x, int64_t rows, int64_t n, PairOf<compute_t<T>>* out) {
  using C = compute_t<T>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), m = r < rows ? n : 0;
  const T* p = x + r * n;
  C sum = 0, squares = 0;
  for_row<V, 0>(m, [&](int64_t i, int) {
    const auto v = load_vec<V>(p + i);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += widen(v.v[j]);
  });
  const C mean = row_reduce(sum, Sum(), shared) / static_cast<C>(n);
  for_row<V, 0>(m, [&](int64_t i, int) {
    const auto v = load_vec<V>(p + i);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (widen(v.v[j]) - mean) * (widen(v.v[j]) - mean);
  });
  squares = row_reduce(squares, Sum(), shared);
  if (threadIdx.x == 0 && m > 0) out[r] = {mean, squares};
}

// Parts of n elements each: M2 is the sum of the parts' and of n (their mean - the mean)^2 (Chan et al.).
template <class C>
__global__ void __launch_bounds__(kWarp)
    statistics_kernel(Sets sets, const PairOf<C>* parts, double eps, C* mean, C* rstd) {
  const int64_t s = blockIdx.x, size = sets.size();
  C sum = 0, squares = 0;
  for (int64_t e = threadIdx.x; e < size; e += kWarp) sum += parts[sets.row(s, e)].a;
  const C m = warp_reduce(sum, Sum()) / static_cast<C>(size);
  for (int64_t e = threadIdx.x; e < size; e += kWarp) {
    const PairOf<C> p = parts[sets.row(s, e)];
    squares += p.b + static_cast<C>(sets.inner) * (p.a - m) * (p.a - m);
  }
  const C variance = warp_reduce(squares, Sum()) / (static_cast<C>(size) * static_cast<C>(sets.inner));
  if (threadIdx.x != 0) return;
  mean[s] = m;
  rstd[s] = C(1) / sqrt(variance + static_cast<C>(eps));
}

template <class T, class A, int V>
__global__ void __launch_bounds__(kMostRowThreads) normalise_kernel(Sets sets, const ChannelNorm c) {
  using C = compute_t<T>;
  const int64_t r = this_row();
  if (r >= c.batch * c.channels) return;
  const int64_t s = sets.set_of(r), channel = r % c.channels;
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  const C mean = static_cast<const C*>(c.mean)[s];
  const C scale = static_cast<const C*>(c.rstd)[s] * (w != nullptr ? widen(w[channel]) : C(1));
  const C shift = b != nullptr ? widen(b[channel]) : C(0);
  for_row<V, 0>(c.inner, [&](int64_t i, int) {
    Vec<C, V> v = load_wide<C, V>(static_cast<const T*>(c.x) + r * c.inner + i);
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean) * scale + shift;
    store_narrow(static_cast<T*>(c.y) + r * c.inner + i, v);
  });
}

// {sum of g, sum of g (x - mean)} of each row.
template <class T, int V>
__global__ void __launch_bounds__(kMostRowThreads)
    sums_kernel(Sets sets, const T* x, const T* g, const compute_t<T>* mean, PairOf<compute_t<T>>* out) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < sets.batch * sets.channels ? sets.inner : 0, first = r * sets.inner;
  const C m = n > 0 ? mean[sets.set_of(r)] : C(0);
  PairOf<C> s{0, 0};
  for_row<V, 0>(n, [&](int64_t i, int) {
    const auto gv = load_vec<V>(g + first + i), xv = load_vec<V>(x + first + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      s.a += widen(gv.v[j]);
      s.b += widen(gv.v[j]) * (widen(xv.v[j]) - m);
    }
  });
  s = row_reduce(s, SumPairs(), shared);
  if (threadIdx.x == 0 && n > 0) out[r] = s;
}

// The gradients of the channels' weights and biases: one warp a channel.
template <class C, class A>
__global__ void __launch_bounds__(kWarp)
    weights_kernel(Sets sets, const PairOf<C>* sums, const C* rstd, A* grad_weight, A* grad_bias) {
  const int64_t channel = blockIdx.x;
  PairOf<C> s{0, 0};
  for (int64_t item = threadIdx.x; item < sets.batch; item += kWarp) {
    const int64_t r = item * sets.channels + channel;
    s.a += sums[r].a;
    s.b += sums[r].b * rstd[sets.set_of(r)];
  }
  s = {warp_reduce(s.a, Sum()), warp_reduce(s.b, Sum())};
  if (threadIdx.x != 0) return;
  if (grad_weight != nullptr) grad_weight[channel] = narrow<A>(s.b);
  if (grad_bias != nullptr) grad_bias[channel] = narrow<A>(s.a);
}

// Of each statistic: the means of w g and of w g (x - mean), times rstd and rstd^3.
template <class C, class A>
__global__ void __launch_bounds__(kWarp)
    means_kernel(Sets sets, const PairOf<C>* sums, const C* rstd, const A* w, PairOf<C>* out) {
  const int64_t set = blockIdx.x, size = sets.size();
  PairOf<C> s{0, 0};
  for (int64_t e = threadIdx.x; e < size; e += kWarp) {
    const int64_t r = sets.row(set, e);
    const C wv = w != nullptr ? widen(w[r % sets.channels]) : C(1);
    s.a += sums[r].a * wv;
    s.b += sums[r].b * wv;
  }
  s = {warp_reduce(s.a, Sum()), warp_reduce(s.b, Sum())};
  const C count = static_cast<C>(size) * static_cast<C>(sets.inner), scale = rstd[set];
  if (threadIdx.x == 0) out[set] = {s.a / count * scale, s.b / count * scale * scale * scale};
}

template <class T, class A, int V>
__global__ void __launch_bounds__(kMostRowThreads)
    gradient_kernel(Sets sets, const ChannelNormBackward c, const PairOf<compute_t<T>>* means) {
  using C = compute_t<T>;
  const int64_t r = this_row();
  if (r >= c.batch * c.channels) return;
  const int64_t s = sets.set_of(r);
  const A* w = static_cast<const A*>(c.weight);
  const C scale = static_cast<const C*>(c.rstd)[s] * (w != nullptr ? widen(w[r % c.channels]) : C(1));
  const C mean = static_cast<const C*>(c.mean)[s];
  const PairOf<C> m = means[s];
  for_row<V, 0>(c.inner, [&](int64_t i, int) {
    const auto x = load_wide<C, V>(static_cast<const T*>(c.x) + r * c.inner + i);
    Vec<C, V> g = load_wide<C, V>(static_cast<const T*>(c.grad_y) + r * c.inner + i);
#pragma unroll
    for (int j = 0; j < V; ++j) g.v[j] = g.v[j] * scale - m.a - (x.v[j] - mean) * m.b;
    store_narrow(static_cast<T*>(c.grad_x) + r * c.inner + i, g);
  });
}

}  // namespace

void channel_norm_cuda(const ChannelNorm& c) {
  if (c.batch * c.channels * c.inner == 0) return;
  if (c.inner == 1 && !c.across_batch) return group_rows_cuda(c);
  dispatch_types(c, [&]<class T, class A>() {
    using C = compute_t<T>;
    const Sets sets(c);
    const RowLaunch l = row_launch<T>(sets.rows(), c.inner, aligned16(c.x) && aligned16(c.y));
    const Tensor workspace = make_workspace<C>(2 * sets.rows());
    auto* parts = static_cast<PairOf<C>*>(workspace.raw_data());
    by_vectors<T>(l, [&](auto v) {
      moments_kernel<T, decltype(v)::value>
          <<<l.blocks, l.threads, 0, stream()>>>(static_cast<const T*>(c.x), l.rows, l.n, parts);
      statistics_kernel<C><<<static_cast<unsigned>(sets.count()), kWarp, 0, stream()>>>(
          sets, parts, c.eps, static_cast<C*>(c.mean), static_cast<C*>(c.rstd));
      normalise_kernel<T, A, decltype(v)::value><<<l.blocks, l.threads, 0, stream()>>>(sets, c);
    });
  });
}

void channel_norm_backward_cuda(const ChannelNormBackward& c) {
  if (c.batch * c.channels * c.inner == 0) {
    for (void* p : {c.grad_weight, c.grad_bias})
      if (p != nullptr)
        check_cuda(cudaMemsetAsync(p, 0, static_cast<size_t>(c.channels * size_of(c.affine)), stream()),
                   "norm_backward", "cudaMemsetAsync");
    return;
  }
  if (c.inner == 1 && !c.across_batch) return group_rows_backward_cuda(c);
  dispatch_types(c, [&]<class T, class A>() {
    using C = compute_t<T>;
    const Sets sets(c);
    const RowLaunch l =
        row_launch<T>(sets.rows(), c.inner, aligned16(c.x) && aligned16(c.grad_y) && aligned16(c.grad_x));
    const Tensor workspace = make_workspace<C>(2 * (sets.rows() + sets.count()));
    auto *sums = static_cast<PairOf<C>*>(workspace.raw_data()), *means = sums + sets.rows();
    const C *mean = static_cast<const C*>(c.mean), *rstd = static_cast<const C*>(c.rstd);
    by_vectors<T>(l, [&](auto v) {
      constexpr int V = decltype(v)::value;
      sums_kernel<T, V><<<l.blocks, l.threads, 0, stream()>>>(sets, static_cast<const T*>(c.x),
                                                              static_cast<const T*>(c.grad_y), mean, sums);
      means_kernel<C, A><<<static_cast<unsigned>(sets.count()), kWarp, 0, stream()>>>(
          sets, sums, rstd, static_cast<const A*>(c.weight), means);
      gradient_kernel<T, A, V><<<l.blocks, l.threads, 0, stream()>>>(sets, c, means);
    });
    weights_kernel<C, A><<<static_cast<unsigned>(c.channels), kWarp, 0, stream()>>>(
        sets, sums, rstd, static_cast<A*>(c.grad_weight), static_cast<A*>(c.grad_bias));
  });
}

}  // namespace strata
