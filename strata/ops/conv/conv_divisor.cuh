#pragma once
// FastDivisor for kernels whose sources run on the processor too (strata/cuda/tile/emulation.cuh).

#include <cstdint>

#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/elementwise.cuh"
#else
namespace strata::cuda {
// Of the library's layout: what plans and holds one is one function in a program that has both.
struct FastDivisor {
  uint32_t d = 1, multiplier = 0, shift = 0;
  FastDivisor() = default;
  explicit FastDivisor(uint32_t divisor) : d(divisor) {
    while (shift < 32 && (uint32_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  uint32_t divide(uint32_t n) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier >> 32) + n) >> shift;
  }
};
}  // namespace strata::cuda
#endif
