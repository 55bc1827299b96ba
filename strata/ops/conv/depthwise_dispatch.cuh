#pragma once
// What the launches of depthwise_bands.cuh and depthwise_last.cuh share.

#include "strata/cuda/current.h"
#include "strata/ops/conv/depthwise.cuh"
#include "strata/ops/conv/depthwise_bands.cuh"

namespace strata::conv_cuda::bands {

/// A type of elements, as kernels are told it.
template <class Element>
struct Elements {
  using T = Element;
};

/// Calls f<elements, size of the filter>().
template <class F>
void dispatch_bands(DType t, int64_t k, F&& f) {
  const auto of = [&]<class E>() {
    if (k == 3) return f.template operator()<E, 3>();
    if (k == 5) return f.template operator()<E, 5>();
    f.template operator()<E, 7>();
  };
  t == DType::bf16 ? of.template operator()<Elements<BFloat16>>() : of.template operator()<Elements<Half>>();
}
/// Calls f(integral constant) with one of kBandBlocks, for tiles of `width` columns.
template <class F>
void by_blocks(int width, F&& f) {
  switch (width) {
    case 8:
      return f(std::integral_constant<int, 1>());
    case 16:
      return f(std::integral_constant<int, 2>());
    case 32:
      return f(std::integral_constant<int, 4>());
    default:
      return f(std::integral_constant<int, 7>());
  }
}

inline int multiprocessors() {
  return properties(current_device()).multiprocessors;
}

}  // namespace strata::conv_cuda::bands
