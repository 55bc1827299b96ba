#pragma once
// What the convolution kernels share.

#include "strata/cuda/divisor.cuh"
#include "strata/ops/conv/conv_cuda.h"

namespace strata::conv_cuda {
using namespace cuda;
using cpu::ConvSizes;

inline constexpr int kThreads = 256;
inline constexpr int64_t kMostBlocks = 1 << 20;  // further elements are a loop

inline unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>((threads + kThreads - 1) / kThreads, kMostBlocks));
}

inline Tensor workspace(DType t, Device device, int64_t n) {
  return empty({{n}, t, device, std::nullopt});
}
/// That sums are kept in.
inline DType sum_dtype(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace strata::conv_cuda
