// Counts of integers on a CUDA device.
//
// The size of the result is one more than the largest element, for which the host must wait in any case: the pass that
// finds it counts too. A block for each multiprocessor has counters for the values below `near` in shared memory, and
// leaves them in a table of its own; what the counters do not reach is added to the result by a second pass, with
// atomics of integers, whose order does not matter. Weights are added up as add_any_order.cu does; those of f64 in the
// order of their positions, after a stable sort by value.

#include <algorithm>

#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/rows.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/add_any_order_kernel.h"
#include "strata/ops/index/index_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 1024;
constexpr int kNearMost = 32768, kNearLeast = 8192;  // counters: 128 KiB, 32 KiB
constexpr int kAhead = 4;                            // vectors under way in each thread
constexpr int64_t kLeast = 16384;                    // elements that are worth a block

// Negative ones become the largest.
template <class T>
__device__ __forceinline__ uint64_t natural(T v) {
  return static_cast<uint64_t>(static_cast<int64_t>(v));
}

// Calls f with the elements of x that belong to this thread of a grid of blocks of kThreads.
template <class T, int V, class F>
__device__ __forceinline__ void for_elements(const T* x, int64_t n, F&& f) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads, vectors = n / V;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  int64_t i = own;
  for (; i + (kAhead - 1) * threads < vectors; i += kAhead * threads) {
    cuda::Vec<T, V> v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) v[u] = cuda::load_vec<V>(x + (i + u * threads) * V);
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int k = 0; k < V; ++k) f(natural(v[u].v[k]));
  }
  for (; i < vectors; i += threads) {
    const cuda::Vec<T, V> v = cuda::load_vec<V>(x + i * V);
#pragma unroll
    for (int k = 0; k < V; ++k) f(natural(v.v[k]));
  }
  if (vectors * V + own < n) f(natural(x[vectors * V + own]));  // fewer than V are left
}

// The largest element of all, and with kCount the counts of each block's elements below near: table[block][near],
// written up to the block's largest, tops[block].
template <class T, int V, bool kCount>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const T* x, int64_t n, int near, unsigned long long* top, uint32_t* table, uint64_t* tops) {
  extern __shared__ uint32_t counts[];
  __shared__ uint64_t shared[kThreads / cuda::kWarp];
  if constexpr (kCount) {
    for (int b = static_cast<int>(threadIdx.x); b < near; b += kThreads) counts[b] = 0;
    __syncthreads();
  }
  uint64_t largest = 0;
  for_elements<T, V>(x, n, [&](uint64_t v) {
    largest = v > largest ? v : largest;
    if constexpr (kCount)
      if (v < static_cast<uint64_t>(near)) atomicAdd(&counts[v], 1u);
  });
#pragma unroll
  for (int o = cuda::kWarp / 2; o > 0; o /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, largest, o);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % cuda::kWarp == 0) shared[threadIdx.x / cuda::kWarp] = largest;
  __syncthreads();  // the counters are complete, too
  largest = shared[threadIdx.x % cuda::kWarp];
#pragma unroll
  for (int o = cuda::kWarp / 2; o > 0; o /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, largest, o);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x == 0) {
    atomicMax(top, static_cast<unsigned long long>(largest));
    if constexpr (kCount) tops[blockIdx.x] = largest;
  }
  if constexpr (kCount) {
    const int end = largest < static_cast<uint64_t>(near) ? static_cast<int>(largest) + 1 : near;
    for (int b = static_cast<int>(threadIdx.x); b < end; b += kThreads)
      table[static_cast<int64_t>(blockIdx.x) * near + b] = counts[b];
  }
}

// y[b] = the sum of the blocks' counts for the bins b < bins <= near; blocks are [kDown][bins], a part of the tables to
// each row of threads.
constexpr int kDown = kThreads / cuda::kWarp;
__global__ void __launch_bounds__(kThreads)
    join_kernel(const uint32_t* table, const uint64_t* tops, int blocks, int near, int64_t* y, int bins) {
  __shared__ int64_t shared[kDown][cuda::kWarp];
  const int b = static_cast<int>(blockIdx.x) * cuda::kWarp + static_cast<int>(threadIdx.x);
  int64_t sum = 0;
#pragma unroll 4
  for (int k = static_cast<int>(threadIdx.y); k < blocks; k += kDown)
    if (b < bins && static_cast<uint64_t>(b) <= tops[k]) sum += table[static_cast<int64_t>(k) * near + b];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || b >= bins) return;
  for (int k = 1; k < kDown; ++k) sum += shared[k][threadIdx.x];
  y[b] = sum;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) far_kernel(const T* x, int64_t n, int near, int64_t* y) {
  for_elements<T, V>(x, n, [&](uint64_t v) {
    if (v >= static_cast<uint64_t>(near)) atomicAdd(reinterpret_cast<unsigned long long*>(y) + v, 1ull);
  });
}

// Waits for the device.
int64_t checked_bins(const Tensor& top, int64_t minlength) {
  cuda::refuse_in_capture("bincount", "the result's size depends on values of the device");
  int64_t last = 0;
  cuda::copy_bytes(&last, Device::cpu(), top.raw_data(), top.device(), sizeof last);
  check(last >= 0, "bincount", "values must not be negative, got ", last);
  check(last < kMostBins, "bincount", "values must be below 2^60, got ", last);
  return std::max(minlength, last + 1);
}

template <class T, int V>
Tensor count(const Tensor& x, const Tensor& weights, int64_t minlength, DType type) {
  const int64_t n = x.numel();
  const auto make = [&](int64_t size, DType t) { return empty({{size}, t, x.device(), std::nullopt}); };
  const cuda::DeviceProperties& card = cuda::properties(cuda::current_device());
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((n + kLeast - 1) / kLeast, 1, card.multiprocessors));
  const T* p = static_cast<const T*>(x.raw_data());
  const Tensor top = make(1, DType::i64);
  cuda::fill_bytes(x.device(), top.raw_data(), 0, sizeof(int64_t));
  auto* const most = static_cast<unsigned long long*>(top.raw_data());
  if (weights.defined()) {
    count_kernel<T, V, false><<<blocks, kThreads, 0, cuda::stream()>>>(p, n, 0, most, nullptr, nullptr);
    const int64_t bins = checked_bins(top, minlength);
    const Tensor y = make(bins, type), amounts = contiguous(to(weights, type)), places = contiguous(to(x, DType::i64));
    if (adds_any_order(type, {1, bins, 1}, n)) {
      add_any_order_cuda(type, y.raw_data(), nullptr, {1, bins, 1}, places, amounts.raw_data(), 1, false);
      return y;
    }
    fill_elements(y, 0);
    const cuda::SortedIndex sorted = cuda::sort_index(places, bins);
    cuda::add_rows(type, y.raw_data(), {1, bins, 1}, sorted, amounts.raw_data(), 1, {-1, true});
    return y;
  }
  constexpr size_t kWord = sizeof(uint32_t);
  const int near =
      card.shared_bytes_per_block >= static_cast<int64_t>(kNearMost * kWord + 1024) ? kNearMost : kNearLeast;
  const Tensor table = make(int64_t{blocks} * near, DType::i32), tops = make(blocks, DType::i64);
  auto* const counts = static_cast<uint32_t*>(table.raw_data());
  auto* const ends = static_cast<uint64_t*>(tops.raw_data());
  const auto kernel = count_kernel<T, V, true>;
  cuda::check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(near * kWord)),
      "bincount", "cudaFuncSetAttribute");
  kernel<<<blocks, kThreads, near * kWord, cuda::stream()>>>(p, n, near, most, counts, ends);
  const int64_t bins = checked_bins(top, minlength), counted = std::min<int64_t>(bins, near);
  const Tensor y = make(bins, type);
  auto* const to = static_cast<int64_t*>(y.raw_data());
  join_kernel<<<cuda::blocks_for(counted, cuda::kWarp), dim3(cuda::kWarp, kDown), 0, cuda::stream()>>>(
      counts, ends, static_cast<int>(blocks), near, to, static_cast<int>(counted));
  if (bins > counted) {
    cuda::fill_bytes(x.device(), to + counted, 0, static_cast<size_t>(bins - counted) * sizeof(int64_t));
    far_kernel<T, V><<<2 * blocks, kThreads, 0, cuda::stream()>>>(p, n, near, to);
  }
  return y;
}

}  // namespace

Tensor bincount_cuda(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const cuda::LaunchScope scope("bincount", x.device());
  const DType type = !weights.defined() ? DType::i64 : weights.dtype() == DType::f32 ? DType::f32 : DType::f64;
  Tensor y;
  if (x.numel() == 0) {
    y = empty({{minlength}, type, x.device(), std::nullopt});
    fill_elements(y, 0);
  } else {
    const Tensor dense = contiguous(x);
    dispatch_ints(x.dtype(), "bincount", [&]<class T>() {
      y = cuda::aligned16(dense.raw_data()) ? count<T, cuda::kVec<T>>(dense, weights, minlength, type)
                                            : count<T, 1>(dense, weights, minlength, type);
    });
  }
  if (const char* failure = scope.failure()) throw DeviceError("bincount", failure);
  return y;
}

}  // namespace strata
