// Dropout on a CUDA device.

#include <cmath>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/dropout/dropout_kernel.h"

namespace strata {
namespace {
using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::widen;

constexpr int kThreads = 256;

// A thread takes V elements from a multiple of V on, with the V / 4 (or one) counter blocks that they lie in.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* y, int64_t n, uint32_t limit, compute_t<T> scale, RngKey key) {
  static_assert(V % 4 == 0);
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (at >= n) return;
  key = resolved(key);
  uint32_t bits[V];
#pragma unroll
  for (int k = 0; k < V; k += 4) {
    const auto four = philox(key, static_cast<uint64_t>(at + k) / 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[k + j] = four[static_cast<size_t>(j)];
  }
  const auto one = [&](T v, uint32_t b) { return narrow<T>(b >> 8 >= limit ? widen(v) * scale : compute_t<T>(0)); };
  constexpr int kLoad = cuda::kVec<T> < V ? cuda::kVec<T> : V;
  const bool aligned = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  if (aligned && at + V <= n) {
#pragma unroll
    for (int k = 0; k < V; k += kLoad) {
      auto v = load_vec<kLoad>(x + at + k);
#pragma unroll
      for (int j = 0; j < kLoad; ++j) v.v[j] = one(v.v[j], bits[k + j]);
      store_vec(y + at + k, v);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (at + k < n) y[at + k] = one(x[at + k], bits[k]);
  }
}

}  // namespace

void dropout_cuda(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key) {
  if (n == 0) return;
  // uniform_f32(bits) < p, as a comparison of integers: bits >> 8 is exact in f32, and so is p * 2^24.
  const uint32_t limit = static_cast<uint32_t>(std::ceil(static_cast<double>(p) * 16777216.0));
  dispatch_floats(t, "dropout", [&]<class T>() {
    constexpr int V = cuda::kVec<T> < 4 ? 4 : cuda::kVec<T>;
    dropout_kernel<T, V><<<cuda::blocks_for(n, int64_t{kThreads} * V), kThreads, 0, cuda::stream()>>>(
        static_cast<const T*>(x), static_cast<T*>(y), n, limit, static_cast<compute_t<T>>(scale), key);
  });
}

}  // namespace strata
