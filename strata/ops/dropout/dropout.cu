// Dropout on a CUDA device.

#include <cmath>

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout_kernel.h"

namespace strata {
namespace {
using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::widen;

constexpr int kThreads = 256;
constexpr int kPiece = 4;  // elements of a thread where operands have gaps
constexpr int kEach = 2;   // stretches of a thread: they share the generator's keys

// The numbers of V elements from `at` on, a multiple of 4.
template <int V>
__device__ __forceinline__ void random_bits(const RngKey& key, int64_t at, uint32_t (&bits)[V]) {
#pragma unroll
  for (int k = 0; k < V; k += 4) {
    const auto four = philox(key, static_cast<uint64_t>(at + k) / 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) bits[k + j] = four[static_cast<size_t>(j)];
  }
}

// A thread takes stretches of V elements, from multiples of V on, with the counter blocks that they lie in. What is
// loaded is under way while the numbers are made. An element is kept where its number is `limit` or more.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* y, int64_t n, uint32_t limit, compute_t<T> scale, RngKey key) {
  static_assert(V % 4 == 0);
  constexpr int kLoad = cuda::kVec<T> < V ? cuda::kVec<T> : V, kApart = kThreads * V;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kEach * kApart + threadIdx.x * V;
  const auto one = [&](T v, uint32_t b) { return narrow<T>(b >= limit ? widen(v) * scale : compute_t<T>(0)); };
  uint32_t bits[V];
  if ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0 &&
      first + (kEach - 1) * kApart + V <= n) {
    cuda::Vec<T, kLoad> v[kEach][V / kLoad];
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int k = 0; k < V; k += kLoad) v[e][k / kLoad] = load_vec<kLoad>(x + first + e * kApart + k);
    key = resolved(key);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      random_bits(key, first + e * kApart, bits);
#pragma unroll
      for (int k = 0; k < V; k += kLoad) {
        auto& w = v[e][k / kLoad];
#pragma unroll
        for (int j = 0; j < kLoad; ++j) w.v[j] = one(w.v[j], bits[k + j]);
        store_vec(y + first + e * kApart + k, w);
      }
    }
  } else {
    key = resolved(key);
    for (int64_t at = first; at < n && at < first + kEach * kApart; at += kApart) {
      random_bits(key, at, bits);
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (at + k < n) y[at + k] = one(x[at + k], bits[k]);
    }
  }
}

// Operands of the walk: y, x, and the elements' numbers in row-major order. Where neighbours in y have neighbouring
// numbers, a block of numbers serves them all.
template <class T>
__global__ void __launch_bounds__(kThreads) dropout_strided_kernel(cuda::Walk<3> w, const T* x, T* y, int64_t number,
                                                                   uint32_t limit, compute_t<T> scale, RngKey key) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.pieces) return;
  int64_t at[3];
  const int64_t count = w.offsets(static_cast<uint32_t>(i), kPiece, at);
  const int64_t y_step = w.strides[0][0], x_step = w.strides[1][0], step = w.strides[2][0];
  T v[kPiece];
#pragma unroll
  for (int k = 0; k < kPiece; ++k) v[k] = k < count ? x[at[1] + k * x_step] : T();
  number += at[2];
  key = resolved(key);
  uint32_t bits[kPiece];
  if (step == 1 && number % 4 == 0) {
    random_bits(key, number, bits);
  } else {
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      const auto n = static_cast<uint64_t>(number + k * step);
      const auto four = philox(key, n / 4);
      bits[k] = n % 4 == 0 ? four[0] : n % 4 == 1 ? four[1] : n % 4 == 2 ? four[2] : four[3];
    }
  }
#pragma unroll
  for (int k = 0; k < kPiece; ++k)
    if (k < count) y[at[0] + k * y_step] = narrow<T>(bits[k] >= limit ? widen(v[k]) * scale : compute_t<T>(0));
}

// uniform_f32(bits) < p, as a comparison of integers: bits >> 8 is exact in f32, and so is p * 2^24. Above UINT32_MAX
// nothing is kept.
uint64_t limit_of(float p) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(p) * 16777216.0)) << 8;
}

}  // namespace

void dropout_cuda(const Tensor& x, const Tensor& y, float p, double scale, RngKey key) {
  if (x.numel() == 0) return;
  const uint64_t limit = limit_of(p);
  if (limit > UINT32_MAX) return fill_elements(y, 0);
  const Tensor numbers = empty({x.shape(), DType::u8, Device::meta(), std::nullopt});
  dispatch_floats(x.dtype(), "dropout", [&]<class T>() {
    cuda::for_parts(cuda::make_walk<3>({&y, &x, &numbers}, "dropout"), kPiece,
                    [&](const cuda::Walk<3>& part, const std::array<int64_t, 3>& at) {
                      dropout_strided_kernel<T>
                          <<<cuda::blocks_for(part.pieces, kThreads), kThreads, 0, cuda::stream()>>>(
                              part, static_cast<const T*>(x.raw_data()) + at[1], static_cast<T*>(y.raw_data()) + at[0],
                              at[2], static_cast<uint32_t>(limit), static_cast<compute_t<T>>(scale), key);
                    });
  });
}

void dropout_cuda(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key) {
  if (n == 0) return;
  const uint64_t limit = limit_of(p);
  if (limit > UINT32_MAX) {  // nothing is kept
    cuda::check_cuda(cudaMemsetAsync(y, 0, static_cast<size_t>(n * size_of(t)), cuda::stream()), "dropout",
                     "cudaMemsetAsync");
    return;
  }
  dispatch_floats(t, "dropout", [&]<class T>() {
    constexpr int V = cuda::kVec<T> < 4 ? 4 : cuda::kVec<T>;
    dropout_kernel<T, V><<<cuda::blocks_for(n, int64_t{kEach} * kThreads * V), kThreads, 0, cuda::stream()>>>(
        static_cast<const T*>(x), static_cast<T*>(y), n, static_cast<uint32_t>(limit), static_cast<compute_t<T>>(scale),
        key);
  });
}

}  // namespace strata
