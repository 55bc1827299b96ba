#pragma once
// How a kernel leaves the largest magnitudes of what it writes.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/magnitudes.h"

namespace strata::cuda {

/// The largest magnitude of what a thread stores, where `parts` (magnitudes_beside) asks for it. The largest of
/// integers is the same in any order.
template <class T>
class Most {
 public:
  __device__ __forceinline__ explicit Most(uint32_t* parts) : parts_(parts) {}

  __device__ __forceinline__ void take(T v) {
    if constexpr (sizeof(T) == 2) {
      bits_ = max(bits_, static_cast<uint32_t>(v.bits) & 0x7fffu);
    } else if constexpr (sizeof(T) == 4) {
      bits_ = max(bits_, __float_as_uint(v) & 0x7fffffffu);
    }
  }
  /// Two numbers of 16 bits.
  __device__ __forceinline__ void take_word(uint32_t w) {
    if (parts_ != nullptr) bits_ = max(bits_, max(w & 0x7fffu, w >> 16 & 0x7fffu));
  }
  template <int V>
  __device__ __forceinline__ void take(const Vec<T, V>& v) {
    if (parts_ == nullptr) return;
#pragma unroll
    for (int j = 0; j < V; ++j) take(v.v[j]);
  }

  /// Of the block's whole warps, all of whose threads call this together, once.
  __device__ __forceinline__ void leave() const {
    if (parts_ == nullptr) return;
    uint32_t most = bits_;
    if constexpr (std::is_same_v<T, Half>)
      most = __float_as_uint(__half2float(__ushort_as_half(static_cast<unsigned short>(most))));
    else if constexpr (sizeof(T) == 2)
      most <<= 16;
    most = __reduce_max_sync(0xffffffffu, most);
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / kWarp;
    if (thread % kWarp == 0) atomicMax(parts_ + (blockIdx.x * warps + thread / kWarp) % kMagnitudeParts, most);
  }

 private:
  uint32_t* parts_;
  uint32_t bits_ = 0;
};

}  // namespace strata::cuda
