#pragma once
// One thread for each element, for kernels that need nothing of a block.

#include <algorithm>
#include <cstdint>

namespace strata::cuda {

inline constexpr int kEachThreads = 256;

/// Blocks of kEachThreads for `total` elements: at most 2^20, which then take more than one each.
inline unsigned each_blocks(int64_t total) {
  return static_cast<unsigned>(std::min<int64_t>((total + kEachThreads - 1) / kEachThreads, int64_t{1} << 20));
}

/// f(e) for the elements e below `total` that belong to this thread of a grid of each_blocks(total).
template <class F>
__device__ __forceinline__ void for_each(int64_t total, F&& f) {
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kEachThreads + threadIdx.x; e < total;
       e += static_cast<int64_t>(gridDim.x) * kEachThreads)
    f(e);
}

}  // namespace strata::cuda
