#pragma once
// Division of 64-bit numbers in kernels, which is fast where they fit 32 bits.

#include "strata/cuda/elementwise.cuh"

namespace strata::cuda {

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

}  // namespace strata::cuda
