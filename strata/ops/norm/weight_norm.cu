// weight_norm of rows and its gradient on a CUDA device: a block has a row, and reads it again when it has its length.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/weight_norm_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256, kAhead = 4, kAcrossThreads = 512;

// f(element, vectors of V of each operand) for this thread's elements of a row, with several loads under way.
template <int V, class T, class F, class... P>
__device__ __forceinline__ void each_vector(int64_t n, F&& f, const T* first, const P*... more) {
  constexpr int64_t kStep = int64_t{kThreads} * V;
#pragma unroll kAhead
  for (int64_t i = threadIdx.x * V; i < n; i += kStep)
    f(i, widen_all(load_vec<V>(first + i)), widen_all(load_vec<V>(more + i))...);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) forward_kernel(const T* v, const T* g, int64_t n, T* y) {
  using C = compute_t<T>;
  __shared__ C shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  v += row * n, y += row * n;
  C squares = 0;
  each_vector<V>(
      n,
      [&](int64_t, const auto& x) {
#pragma unroll
        for (int k = 0; k < V; ++k) squares += x.v[k] * x.v[k];
      },
      v);
  const C scale = widen(g[row]) / sqrt(block_reduce<kThreads>(squares, Sum(), shared));
  each_vector<V>(
      n,
      [&](int64_t i, auto x) {
#pragma unroll
        for (int k = 0; k < V; ++k) x.v[k] *= scale;
        store_vec(y + i, narrow_all<T>(x));
      },
      v);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* gy, const T* v, const T* g, int64_t n, T* gv, T* gg) {
  using C = compute_t<T>;
  __shared__ C shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  gy += row * n, v += row * n, gv += row * n;
  C squares = 0, along = 0;
  each_vector<V>(
      n,
      [&](int64_t, const auto& x, const auto& up) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          squares += x.v[k] * x.v[k];
          along += x.v[k] * up.v[k];
        }
      },
      v, gy);
  squares = block_reduce<kThreads>(squares, Sum(), shared);
  along = block_reduce<kThreads>(along, Sum(), shared);
  const C length = sqrt(squares), scale = widen(g[row]) / length, share = along / squares;
  each_vector<V>(
      n,
      [&](int64_t i, const auto& x, auto up) {
#pragma unroll
        for (int k = 0; k < V; ++k) up.v[k] = scale * (up.v[k] - x.v[k] * share);
        store_vec(gv + i, narrow_all<T>(up));
      },
      v, gy);
  if (threadIdx.x == 0) gg[row] = narrow<T>(along / length);
}

// [outer, kept, inner] whose middle dimension has a length each, and the steps of g beside it.
struct Across {
  int64_t kept, count;  // lengths, elements of each: outer * inner
  Divisor inner;
  int64_t g_outer, g_kept, g_inner;
  int across;  // lengths of a block, side by side; a power of two
};

template <class T>
__global__ void __launch_bounds__(kAcrossThreads) across_kernel(Across a, const T* v, const T* g, T* y) {
  using C = compute_t<T>;
  __shared__ C shared[kAcrossThreads];
  const int t = static_cast<int>(threadIdx.x), lanes = kAcrossThreads / a.across, lane = t / a.across;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * a.across + t % a.across;
  const int64_t count = c < a.kept ? a.count : 0;
  const auto place = [&](int64_t e, int64_t& o, int64_t& i) {
    o = a.inner.split(e, i);
    return (o * a.kept + c) * a.inner.d + i;
  };
  C squares = 0;
#pragma unroll 4
  for (int64_t e = lane; e < count; e += lanes) {
    int64_t o, i;
    const C x = widen(v[place(e, o, i)]);
    squares += x * x;
  }
  shared[t] = squares;
  __syncthreads();
  for (int half = kAcrossThreads / 2; half >= a.across; half /= 2) {
    if (t < half) shared[t] += shared[t + half];
    __syncthreads();
  }
  const C length = sqrt(shared[t % a.across]);
#pragma unroll 4
  for (int64_t e = lane; e < count; e += lanes) {
    int64_t o, i;
    const int64_t at = place(e, o, i);
    y[at] = narrow<T>(widen(v[at]) * (widen(g[o * a.g_outer + c * a.g_kept + i * a.g_inner]) / length));
  }
}

// Calls f(V) with the elements of an access.
template <class T, class F>
void with_vectors(int64_t n, std::initializer_list<const void*> operands, F&& f) {
  bool vectors = n % kVec<T> == 0;
  for (const void* p : operands) vectors = vectors && aligned16(p);
  if (vectors)
    f(std::integral_constant<int, kVec<T>>());
  else
    f(std::integral_constant<int, 1>());
}

}  // namespace

void weight_norm_cuda(DType t, const void* v, const void* g, int64_t rows, int64_t n, void* y) {
  dispatch_floats(t, "weight_norm", [&]<class T>() {
    with_vectors<T>(n, {v, y}, [&](auto width) {
      forward_kernel<T, decltype(width)::value><<<static_cast<unsigned>(rows), kThreads, 0, stream()>>>(
          static_cast<const T*>(v), static_cast<const T*>(g), n, static_cast<T*>(y));
    });
  });
}

void weight_norm_backward_cuda(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n, void* gv,
                               void* gg) {
  dispatch_floats(t, "weight_norm_backward", [&]<class T>() {
    with_vectors<T>(n, {gy, v, gv}, [&](auto width) {
      backward_kernel<T, decltype(width)::value><<<static_cast<unsigned>(rows), kThreads, 0, stream()>>>(
          static_cast<const T*>(gy), static_cast<const T*>(v), static_cast<const T*>(g), n, static_cast<T*>(gv),
          static_cast<T*>(gg));
    });
  });
}

bool weight_norm_across_cuda(const Tensor& y, const Tensor& v, const Tensor& given, int64_t kept) {
  constexpr int64_t kMostOfOne = 16384;  // elements of a length that a block may have
  constexpr int kSectorBytes = 32;
  if (v.dtype() != given.dtype() || y.shape() != v.shape() || !v.is_contiguous() || !y.is_contiguous()) return false;
  if (v.dim() == 0 || v.numel() == 0 || v.numel() / v.size(kept) > kMostOfOne) return false;
  const Tensor g = expand(given, v.shape());
  int64_t outer = 1, inner = 1, g_outer = 0, g_inner = 0;
  for (int64_t d = v.dim() - 1; d >= 0; --d) {
    if (d == kept || v.size(d) == 1) continue;
    int64_t &size = d > kept ? inner : outer, &step = d > kept ? g_inner : g_outer;
    const int64_t own = g.strides()[static_cast<int>(d)];
    if (size == 1) step = own;
    if (own != step * size) return false;
    size *= v.size(d);
  }
  const int across = inner == 1 ? kSectorBytes / static_cast<int>(size_of(v.dtype())) : 1;
  const Across a{v.size(kept), outer * inner, Divisor(inner), g_outer, g.strides()[static_cast<int>(kept)],
                 g_inner,      across};
  dispatch_floats(v.dtype(), "weight_norm", [&]<class T>() {
    across_kernel<T><<<blocks_for(a.kept, across), kAcrossThreads, 0, stream()>>>(
        a, static_cast<const T*>(v.raw_data()), static_cast<const T*>(g.raw_data()), static_cast<T*>(y.raw_data()));
  });
  return true;
}

}  // namespace strata
