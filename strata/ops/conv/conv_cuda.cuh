#pragma once
// What the convolution kernels share.

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/conv/conv_cuda.h"

namespace strata::conv_cuda {
using namespace cuda;
using cpu::ConvSizes;

inline constexpr int kThreads = 256;
inline constexpr int64_t kMostBlocks = 1 << 20;  // further elements are a loop

inline unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>((threads + kThreads - 1) / kThreads, kMostBlocks));
}

/// Quotient by a number known before the launch, of any dividend that is not negative.
struct Divisor {
  int64_t d = 1;
  FastDivisor fast;
  Divisor() = default;
  explicit Divisor(int64_t divisor) : d(divisor > 0 ? divisor : 1) {
    if (d < (int64_t{1} << 31)) fast = FastDivisor(static_cast<uint32_t>(d));
  }
  __device__ __forceinline__ int64_t split(int64_t n, int64_t& rest) const {
    const bool narrow = n < (int64_t{1} << 31) && d < (int64_t{1} << 31);
    const int64_t q = narrow ? static_cast<int64_t>(fast.divide(static_cast<uint32_t>(n))) : n / d;
    rest = n - q * d;
    return q;
  }
};

inline Tensor workspace(DType t, Device device, int64_t n) {
  return empty({{n}, t, device, std::nullopt});
}
/// That sums are kept in.
inline DType sum_dtype(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace strata::conv_cuda
