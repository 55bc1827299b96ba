// Counts of the parts of a range on a CUDA device: one reading, each block with counters in shared memory.

#include <algorithm>

#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/launch.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/statistics/histogram_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kShared = 8192;  // counters that a block has of its own

// Integers may be added in any order.
template <class T, bool kOwn>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const T* x, int64_t n, int64_t bins, compute_t<T> low, compute_t<T> high, compute_t<T> parts,
                 compute_t<T> width, unsigned long long* counts) {
  using C = compute_t<T>;
  extern __shared__ unsigned own[];
  if constexpr (kOwn) {
    for (int64_t b = threadIdx.x; b < bins; b += kThreads) own[b] = 0;
    __syncthreads();
  }
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const C v = static_cast<C>(cuda::widen(x[i]));
    if (!(v >= low && v <= high)) continue;  // NaN too
    const auto part = static_cast<int64_t>((v - low) * parts / width);
    const int64_t b = part < 0 ? 0 : part < bins ? part : bins - 1;
    if constexpr (kOwn)
      atomicAdd(own + b, 1u);
    else
      atomicAdd(counts + b, 1ull);
  }
  if constexpr (kOwn) {
    __syncthreads();
    for (int64_t b = threadIdx.x; b < bins; b += kThreads)
      if (own[b] != 0) atomicAdd(counts + b, static_cast<unsigned long long>(own[b]));
  }
}

}  // namespace

Tensor histc_cuda(const Tensor& x, int64_t bins, double low, double high) {
  const cuda::LaunchScope scope("histc", x.device());
  const Tensor from = contiguous(x), counts = empty({{bins}, DType::i64, x.device(), std::nullopt});
  const int64_t n = x.numel();
  cuda::check_cuda(cudaMemsetAsync(counts.raw_data(), 0, static_cast<size_t>(counts.nbytes()), cuda::stream()), "histc",
                   "cudaMemsetAsync");
  if (n > 0)
    dispatch_floats(x.dtype(), "histc", [&]<class T>() {
      using C = compute_t<T>;
      // A block has fewer than 2^32 elements.
      const int64_t most = std::max<int64_t>(int64_t{2} * cuda::properties(cuda::current_device()).multiprocessors,
                                             n / (int64_t{1} << 31) + 1);
      const auto blocks = static_cast<unsigned>(std::min<int64_t>((n + 4 * kThreads - 1) / (4 * kThreads), most));
      const auto kernel = bins <= kShared ? count_kernel<T, true> : count_kernel<T, false>;
      const size_t memory = bins <= kShared ? static_cast<size_t>(bins) * sizeof(unsigned) : 0;
      kernel<<<blocks, kThreads, memory, cuda::stream()>>>(
          static_cast<const T*>(from.raw_data()), n, bins, static_cast<C>(low), static_cast<C>(high),
          static_cast<C>(bins), static_cast<C>(high - low), static_cast<unsigned long long*>(counts.raw_data()));
    });
  if (const char* failure = scope.failure()) throw DeviceError("histc", failure);
  return counts;
}

}  // namespace strata
