// weight_norm of rows and its gradient on a CUDA device: a block has a row, and reads it again when it has its length.

#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/weight_norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256, kAhead = 4;

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

}  // namespace strata
