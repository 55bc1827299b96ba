// Batch normalisation on a CUDA device of [rows, channels], the channels innermost: images in the channels-last layout,
// and vectors. A thread keeps its columns and walks down a share of the rows; shares are combined in their order.

#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kColumnThreads = 256, kCombined = 32;  // columns that a block combines the shares of

// Threads [rows at once][lanes of V columns]; block (x, y) has the columns of lanes x and share y of the rows.
struct Columns {
  int64_t rows = 0, share = 0;
  int channels = 0, lanes = 0, shares = 0;
  __device__ int column(int v) const {
    return (static_cast<int>(blockIdx.x) * lanes + static_cast<int>(threadIdx.x) % lanes) * v;
  }
  __device__ int64_t first() const { return static_cast<int64_t>(blockIdx.y) * share; }
  __device__ int64_t end() const { return min(rows, first() + share); }
  __device__ int64_t start() const { return first() + static_cast<int>(threadIdx.x) / lanes; }
  __device__ int step() const { return kColumnThreads / lanes; }
  __device__ int64_t size(int k) const { return min(share, rows - k * share); }
};

template <class T>
Columns columns_of(int64_t rows, int64_t channels, bool vectors) {
  constexpr int64_t kBlocks = 1056;  // eight for each multiprocessor of a large card
  const int64_t pieces = vectors ? channels / kVec<T> : channels;
  Columns c;
  c.rows = rows, c.channels = static_cast<int>(channels), c.lanes = 1;
  while (c.lanes < 32 && c.lanes < pieces) c.lanes *= 2;
  const int64_t across = (pieces + c.lanes - 1) / c.lanes, at_once = kColumnThreads / c.lanes;
  const int64_t most = std::clamp<int64_t>(rows / (4 * at_once), 1, std::max<int64_t>(1, kBlocks / across));
  c.share = (rows + most - 1) / most;
  c.shares = static_cast<int>((rows + c.share - 1) / c.share);
  return c;
}
template <int V>
dim3 column_grid(const Columns& c) {
  return {blocks_for(c.channels, int64_t{V} * c.lanes), static_cast<unsigned>(c.shares)};
}

// Adds up the pairs of threads with the same columns; those of the first row of threads have the sums.
template <int V, class C>
__device__ __forceinline__ void add_rows(PairOf<C> (&s)[V], int lanes, PairOf<C>* shared) {
  const int tid = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int j = 0; j < V; ++j) shared[j * kColumnThreads + tid] = s[j];
  for (int half = kColumnThreads / 2; half >= lanes; half /= 2) {
    __syncthreads();
    if (tid < half) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        PairOf<C>& to = shared[j * kColumnThreads + tid];
        to = SumPairs()(to, shared[j * kColumnThreads + tid + half]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < V; ++j) s[j] = shared[j * kColumnThreads + tid];
}

// {mean, sum of squared differences from it} of each column of each share. The share's first row is taken off first, so
// that few digits are lost in the difference of squares.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    column_moments_kernel(Columns c, const T* x, PairOf<compute_t<T>>* out) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[V * kColumnThreads];
  const int column = c.column(V);
  PairOf<C> s[V] = {};
  Vec<C, V> shift{};
  if (column < c.channels) {
    shift = load_wide<C, V>(x + c.first() * c.channels + column);
#pragma unroll 4
    for (int64_t r = c.start(); r < c.end(); r += c.step()) {
      const Vec<C, V> v = load_wide<C, V>(x + r * c.channels + column);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C d = v.v[j] - shift.v[j];
        s[j].a += d;
        s[j].b += d * d;
      }
    }
  }
  add_rows<V>(s, c.lanes, shared);
  if (static_cast<int>(threadIdx.x) >= c.lanes || column >= c.channels) return;
  const C n = static_cast<C>(c.end() - c.first());
#pragma unroll
  for (int j = 0; j < V; ++j)
    out[static_cast<int64_t>(blockIdx.y) * c.channels + column + j] = {shift.v[j] + s[j].a / n,
                                                                       max(s[j].b - s[j].a * (s[j].a / n), C(0))};
}

// Sums up f(share) over the shares for a column a lane: eight threads each take every eighth share.
template <class C, class F>
__device__ __forceinline__ PairOf<C> over_shares(int shares, bool valid, PairOf<C>* shared, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % kCombined, part = static_cast<int>(threadIdx.x) / kCombined;
  PairOf<C> s{0, 0};
  if (valid)
    for (int k = part; k < shares; k += 8) s = SumPairs()(s, f(k));
  __syncthreads();
  shared[threadIdx.x] = s;
  __syncthreads();
  s = shared[lane];
  for (int i = 1; i < 8; ++i) s = SumPairs()(s, shared[i * kCombined + lane]);
  return s;
}

// Shares of n elements each: M2 is the sum of the shares' and of n (their mean - the mean)^2 (Chan et al.).
template <class C>
__global__ void __launch_bounds__(8 * kCombined)
    column_statistics_kernel(Columns c, const PairOf<C>* parts, double eps, C* mean, C* rstd) {
  __shared__ PairOf<C> shared[8 * kCombined];
  const int column = static_cast<int>(blockIdx.x) * kCombined + static_cast<int>(threadIdx.x) % kCombined;
  const bool valid = column < c.channels;
  const auto part = [&](int k) { return parts[static_cast<int64_t>(k) * c.channels + column]; };
  const C total = static_cast<C>(c.rows);
  const C m = over_shares<C>(c.shares, valid, shared, [&](int k) {
                return PairOf<C>{part(k).a * (static_cast<C>(c.size(k)) / total), 0};
              }).a;
  const C squares = over_shares<C>(c.shares, valid, shared, [&](int k) {
                      const PairOf<C> p = part(k);
                      return PairOf<C>{0, p.b + static_cast<C>(c.size(k)) * (p.a - m) * (p.a - m)};
                    }).b;
  if (!valid || threadIdx.x >= kCombined) return;
  mean[column] = m;
  rstd[column] = C(1) / sqrt(squares / total + static_cast<C>(eps));
}

template <class T, class A, int V>
__global__ void __launch_bounds__(kColumnThreads) column_normalise_kernel(Columns c, const ChannelNorm n) {
  using C = compute_t<T>;
  const int column = c.column(V);
  if (column >= c.channels) return;
  const A *w = static_cast<const A*>(n.weight), *b = static_cast<const A*>(n.bias);
  C mean[V], scale[V], shift[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    mean[j] = static_cast<const C*>(n.mean)[column + j];
    scale[j] = static_cast<const C*>(n.rstd)[column + j] * (w != nullptr ? widen(w[column + j]) : C(1));
    shift[j] = b != nullptr ? widen(b[column + j]) : C(0);
  }
#pragma unroll 4
  for (int64_t r = c.start(); r < c.end(); r += c.step()) {
    Vec<C, V> v = load_wide<C, V>(static_cast<const T*>(n.x) + r * c.channels + column);
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean[j]) * scale[j] + shift[j];
    store_narrow(static_cast<T*>(n.y) + r * c.channels + column, v);
  }
}

// {sum of g, sum of g (x - mean)} of each column of each share.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    column_sums_kernel(Columns c, const T* x, const T* g, const compute_t<T>* means, PairOf<compute_t<T>>* out) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[V * kColumnThreads];
  const int column = c.column(V);
  PairOf<C> s[V] = {};
  if (column < c.channels) {
    C mean[V];
#pragma unroll
    for (int j = 0; j < V; ++j) mean[j] = means[column + j];
#pragma unroll 4
    for (int64_t r = c.start(); r < c.end(); r += c.step()) {
      const Vec<C, V> xv = load_wide<C, V>(x + r * c.channels + column),
                      gv = load_wide<C, V>(g + r * c.channels + column);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        s[j].a += gv.v[j];
        s[j].b += gv.v[j] * (xv.v[j] - mean[j]);
      }
    }
  }
  add_rows<V>(s, c.lanes, shared);
  if (static_cast<int>(threadIdx.x) >= c.lanes || column >= c.channels) return;
#pragma unroll
  for (int j = 0; j < V; ++j) out[static_cast<int64_t>(blockIdx.y) * c.channels + column + j] = s[j];
}

// The gradients of weight and bias; of each channel the means of w g and of w g (x - mean), times rstd and rstd^3.
template <class C, class A>
__global__ void __launch_bounds__(8 * kCombined)
    column_weights_kernel(Columns c, const PairOf<C>* sums, const C* rstd, const A* w, A* grad_weight, A* grad_bias,
                          PairOf<C>* means) {
  __shared__ PairOf<C> shared[8 * kCombined];
  const int column = static_cast<int>(blockIdx.x) * kCombined + static_cast<int>(threadIdx.x) % kCombined;
  const bool valid = column < c.channels;
  const PairOf<C> s = over_shares<C>(c.shares, valid, shared,
                                     [&](int k) { return sums[static_cast<int64_t>(k) * c.channels + column]; });
  if (!valid || threadIdx.x >= kCombined) return;
  const C scale = rstd[column], wv = (w != nullptr ? widen(w[column]) : C(1)) / static_cast<C>(c.rows);
  if (grad_weight != nullptr) grad_weight[column] = narrow<A>(s.b * scale);
  if (grad_bias != nullptr) grad_bias[column] = narrow<A>(s.a);
  means[column] = {s.a * wv * scale, s.b * wv * scale * scale * scale};
}

template <class T, class A, int V>
__global__ void __launch_bounds__(kColumnThreads)
    column_gradient_kernel(Columns c, const ChannelNormBackward n, const PairOf<compute_t<T>>* means) {
  using C = compute_t<T>;
  const int column = c.column(V);
  if (column >= c.channels) return;
  const A* w = static_cast<const A*>(n.weight);
  C mean[V], scale[V];
  PairOf<C> m[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    mean[j] = static_cast<const C*>(n.mean)[column + j];
    scale[j] = static_cast<const C*>(n.rstd)[column + j] * (w != nullptr ? widen(w[column + j]) : C(1));
    m[j] = means[column + j];
  }
#pragma unroll 2
  for (int64_t r = c.start(); r < c.end(); r += c.step()) {
    const int64_t at = r * c.channels + column;
    const Vec<C, V> x = load_wide<C, V>(static_cast<const T*>(n.x) + at);
    Vec<C, V> g = load_wide<C, V>(static_cast<const T*>(n.grad_y) + at);
#pragma unroll
    for (int j = 0; j < V; ++j) g.v[j] = g.v[j] * scale[j] - m[j].a - (x.v[j] - mean[j]) * m[j].b;
    store_narrow(static_cast<T*>(n.grad_x) + at, g);
  }
}

// Calls f with how many columns a thread has.
template <class T, class F>
void by_columns(bool vectors, F&& f) {
  if (vectors) return f(std::integral_constant<int, kVec<T>>());
  f(std::integral_constant<int, 1>());
}

}  // namespace

void column_norm_cuda(const ChannelNorm& n) {
  dispatch_types(n, [&]<class T, class A>() {
    using C = compute_t<T>;
    const bool vectors = n.channels % kVec<T> == 0 && all_aligned(n.x, n.y);
    const Columns c = columns_of<T>(n.batch, n.channels, vectors);
    const Tensor workspace = make_workspace<C>(2 * n.channels * c.shares);
    auto* parts = static_cast<PairOf<C>*>(workspace.raw_data());
    by_columns<T>(vectors, [&](auto v) {
      constexpr int V = decltype(v)::value;
      column_moments_kernel<T, V>
          <<<column_grid<V>(c), kColumnThreads, 0, stream()>>>(c, static_cast<const T*>(n.x), parts);
      column_statistics_kernel<C><<<blocks_for(n.channels, kCombined), 8 * kCombined, 0, stream()>>>(
          c, parts, n.eps, static_cast<C*>(n.mean), static_cast<C*>(n.rstd));
      column_normalise_kernel<T, A, V><<<column_grid<V>(c), kColumnThreads, 0, stream()>>>(c, n);
    });
  });
}

void column_norm_backward_cuda(const ChannelNormBackward& n) {
  dispatch_types(n, [&]<class T, class A>() {
    using C = compute_t<T>;
    const bool vectors = n.channels % kVec<T> == 0 && all_aligned(n.x, n.grad_y, n.grad_x);
    const Columns c = columns_of<T>(n.batch, n.channels, vectors);
    const Tensor workspace = make_workspace<C>(2 * n.channels * (c.shares + 1));
    auto *sums = static_cast<PairOf<C>*>(workspace.raw_data()), *means = sums + n.channels * c.shares;
    by_columns<T>(vectors, [&](auto v) {
      constexpr int V = decltype(v)::value;
      column_sums_kernel<T, V><<<column_grid<V>(c), kColumnThreads, 0, stream()>>>(
          c, static_cast<const T*>(n.x), static_cast<const T*>(n.grad_y), static_cast<const C*>(n.mean), sums);
      column_weights_kernel<C, A><<<blocks_for(n.channels, kCombined), 8 * kCombined, 0, stream()>>>(
          c, sums, static_cast<const C*>(n.rstd), static_cast<const A*>(n.weight), static_cast<A*>(n.grad_weight),
          static_cast<A*>(n.grad_bias), means);
      column_gradient_kernel<T, A, V><<<column_grid<V>(c), kColumnThreads, 0, stream()>>>(c, n, means);
    });
  });
}

}  // namespace strata
