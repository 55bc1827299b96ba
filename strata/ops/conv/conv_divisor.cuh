#pragma once
// FastDivisor for kernels whose sources run on the processor too (strata/cuda/tile/emulation.cuh).

#include <cstdint>

#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/elementwise.cuh"
#else
namespace strata::cuda {
struct FastDivisor {
  uint32_t d = 1;
  FastDivisor() = default;
  explicit FastDivisor(uint32_t divisor) : d(divisor) {}
  uint32_t divide(uint32_t n) const { return n / d; }
};
}  // namespace strata::cuda
#endif
