// nll_loss on a CUDA device: one element of a row is read. A block adds up the losses and the weights of few rows, so
// that the loss is one launch, and its gradient another; of many rows blocks add up parts, in f64 and a fixed order.

#include <algorithm>

#include "strata/cuda/current.h"
#include "strata/cuda/divisor.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 1024, kEach = 256;
constexpr int64_t kOneBlock = 8192;  // rows that one block adds up
constexpr int kMostParts = 128;
constexpr int kMany = 8;  // rows of a thread that are on their way together

// Losses times weights, and the weights of the rows that count.
struct Sums {
  double loss, weight;
};
struct AddSums {
  __device__ Sums operator()(const Sums& a, const Sums& b) const { return {a.loss + b.loss, a.weight + b.weight}; }
};
// Every thread of the block's kThreads gets the sum; `shared` may be used again at once.
__device__ __forceinline__ Sums block_sums(Sums v, Sums* shared) {
#pragma unroll
  for (int o = kWarp / 2; o > 0; o /= 2) {
    v.loss += __shfl_xor_sync(0xffffffffu, v.loss, o);
    v.weight += __shfl_xor_sync(0xffffffffu, v.weight, o);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = {0, 0};
#pragma unroll
  for (int w = 0; w < kThreads / kWarp; ++w) v = AddSums()(v, shared[w]);
  __syncthreads();
  return v;
}

// What a row's loss is multiplied by: 0 where it does not count, 1 where its target is no class.
template <class C>
__device__ __forceinline__ C weight_of(const NllCall& c, int64_t target) {
  if (target == c.ignore_index) return 0;
  if (c.weight == nullptr || target < 0 || target >= c.classes) return 1;
  return static_cast<const C*>(c.weight)[target];
}
// The loss of a row that counts, without its weight.
template <class T>
__device__ __forceinline__ compute_t<T> loss_of(const NllCall& c, const Divisor& inner, int64_t r, int64_t target,
                                                const RangeCheck& in_range) {
  if (!in_range(target, c.classes)) return static_cast<compute_t<T>>(NAN);
  int64_t i;
  const int64_t n = inner.split(r, i);
  return -widen(static_cast<const T*>(c.x)[n * c.stride[0] + target * c.stride[1] + i * c.stride[2]]);
}

template <class T>
__global__ void __launch_bounds__(kEach) each_kernel(const NllCall c, Divisor inner, T* loss, RangeCheck in_range) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kEach + threadIdx.x;
  if (r >= c.rows()) return;
  const int64_t t = c.target[r];
  loss[r] = narrow<T>(t == c.ignore_index ? compute_t<T>(0)
                                          : loss_of<T>(c, inner, r, t, in_range) * weight_of<compute_t<T>>(c, t));
}

// The loss of all rows in one block, else the sums of each block's rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    total_kernel(const NllCall c, Divisor inner, T* loss, Sums* parts, RangeCheck in_range) {
  using C = compute_t<T>;
  __shared__ Sums shared[kThreads / kWarp];
  const int64_t all = c.rows(), step = static_cast<int64_t>(gridDim.x) * kThreads;
  Sums sums{0, 0};
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; first < all; first += kMany * step) {
    int64_t target[kMany];
    C each[kMany];
#pragma unroll
    for (int u = 0; u < kMany; ++u) {
      const int64_t r = first + u * step;
      target[u] = r < all ? c.target[r] : c.ignore_index;
    }
#pragma unroll
    for (int u = 0; u < kMany; ++u)
      each[u] = target[u] == c.ignore_index ? C(0) : loss_of<T>(c, inner, first + u * step, target[u], in_range);
#pragma unroll
    for (int u = 0; u < kMany; ++u) {
      const auto weight = static_cast<double>(weight_of<C>(c, target[u]));
      sums.loss += static_cast<double>(each[u]) * weight;
      sums.weight += weight;
    }
  }
  sums = block_sums(sums, shared);
  if (threadIdx.x != 0) return;
  if (parts != nullptr)
    parts[blockIdx.x] = sums;
  else
    *loss = narrow<T>(static_cast<C>(c.reduction == Reduction::mean ? sums.loss / sums.weight : sums.loss));
}

template <class T>
__global__ void __launch_bounds__(kThreads) join_kernel(const NllCall c, T* loss, const Sums* parts, int count) {
  __shared__ Sums shared[kThreads / kWarp];
  const Sums sums = block_sums(static_cast<int>(threadIdx.x) < count ? parts[threadIdx.x] : Sums{0, 0}, shared);
  if (threadIdx.x == 0)
    *loss = narrow<T>(static_cast<compute_t<T>>(c.reduction == Reduction::mean ? sums.loss / sums.weight : sums.loss));
}

// The weights of rows [begin, end) together.
template <class C>
__device__ __forceinline__ double weights_of(const NllCall& c, int64_t begin, int64_t end, Sums* shared) {
  double weight = 0;
  for (int64_t first = begin + threadIdx.x; first < end; first += kMany * kThreads) {
    int64_t target[kMany];
#pragma unroll
    for (int u = 0; u < kMany; ++u)
      target[u] = first + u * kThreads < end ? c.target[first + u * kThreads] : c.ignore_index;
#pragma unroll
    for (int u = 0; u < kMany; ++u) weight += static_cast<double>(weight_of<C>(c, target[u]));
  }
  return block_sums({0, weight}, shared).weight;
}
template <class C>
__global__ void __launch_bounds__(kThreads) weights_kernel(const NllCall c, double* weight) {
  __shared__ Sums shared[kThreads / kWarp];
  const double sum = weights_of<C>(c, 0, c.rows(), shared);
  if (threadIdx.x == 0) *weight = sum;
}

// gx [outer, classes, inner] in pieces of V elements, which have one class's row where inner is 1.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const NllCall c, const T* g, T* gx, const double* weight,
                                                            int64_t pieces, Divisor inner, Divisor classes) {
  using C = compute_t<T>;
  __shared__ Sums shared[kThreads / kWarp];
  double all = 1;
  if (c.reduction == Reduction::mean) all = weight != nullptr ? *weight : weights_of<C>(c, 0, c.rows(), shared);
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; p < pieces;
       p += static_cast<int64_t>(gridDim.x) * kThreads) {
    int64_t i, first;
    const int64_t n = classes.split(inner.split(p * V, i), first), r = n * c.inner + i, t = c.target[r];
    Vec<T, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] = narrow<T>(C(0));
    if (t >= first && t < first + V && t != c.ignore_index) {
      const C by = static_cast<C>(static_cast<double>(weight_of<C>(c, t)) / all);
      const T slope = narrow<T>(-widen(g[c.reduction == Reduction::none ? r : 0]) * by);
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (t == first + k) v.v[k] = slope;
    }
    store_vec(gx + p * V, v);
  }
}

}  // namespace

void nll_loss_cuda(const NllCall& c, void* loss) {
  const int64_t rows = c.rows();
  const Divisor inner(c.inner);
  dispatch_floats(c.dtype, "nll_loss", [&]<class T>() {
    T* const to = static_cast<T*>(loss);
    if (c.reduction == Reduction::none) {
      if (rows > 0) each_kernel<T><<<blocks_for(rows, kEach), kEach, 0, stream()>>>(c, inner, to, range_check());
    } else if (rows <= kOneBlock) {
      total_kernel<T><<<1, kThreads, 0, stream()>>>(c, inner, to, nullptr, range_check());
    } else {
      const int blocks = static_cast<int>(std::min<int64_t>((rows + kThreads - 1) / kThreads, kMostParts));
      const Tensor parts = empty({Shape{2 * blocks}, DType::f64, Device::cuda(current_device()), std::nullopt});
      auto* const sums = static_cast<Sums*>(parts.raw_data());
      total_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(c, inner, to, sums, range_check());
      join_kernel<T><<<1, kThreads, 0, stream()>>>(c, to, sums, blocks);
    }
  });
}

void nll_loss_backward_cuda(const NllCall& c, const void* grad_loss, void* grad_x) {
  const int64_t total = c.rows() * c.classes;
  if (total == 0) return;
  dispatch_floats(c.dtype, "nll_loss", [&]<class T>() {
    const bool apart = c.reduction == Reduction::mean && c.rows() > kOneBlock;
    const Tensor weight =
        apart ? empty({Shape{1}, DType::f64, Device::cuda(current_device()), std::nullopt}) : Tensor();
    auto* const sum = apart ? static_cast<double*>(weight.raw_data()) : nullptr;
    if (apart) weights_kernel<compute_t<T>><<<1, kThreads, 0, stream()>>>(c, sum);
    const auto launch = [&]<int V>() {
      const int64_t pieces = total / V, most = 2 * properties(current_device()).multiprocessors;
      const auto blocks = static_cast<unsigned>(std::min<int64_t>((pieces + kThreads - 1) / kThreads, most));
      gradient_kernel<T, V><<<blocks, kThreads, 0, stream()>>>(c, static_cast<const T*>(grad_loss),
                                                               static_cast<T*>(grad_x), sum, pieces, Divisor(c.inner),
                                                               Divisor(c.classes));
    };
    constexpr int V = kVec<T>;
    if (c.inner == 1 && c.classes % V == 0 && aligned16(grad_x)) return launch.template operator()<V>();
    launch.template operator()<1>();
  });
}

}  // namespace strata
