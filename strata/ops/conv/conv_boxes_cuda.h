#pragma once
// Convolutions of tensors with their channels innermost on Hopper's tensor cores, fed by the copy engine.

#include "strata/ops/conv/conv_choice_cuda.h"
#include "strata/ops/conv/conv_cuda.h"

namespace strata::conv_cuda {

/// How a filter [out, in, taps] lies: elements from one to the next.
struct FilterLayout {
  int64_t out, in, tap;
};
inline FilterLayout row_major_filter(const cpu::ConvSizes& s) {
  return {s.ic / s.groups * s.kh * s.kw, s.kh * s.kw, 1};
}
inline FilterLayout channels_last_filter(const cpu::ConvSizes& s) {
  return {s.ic / s.groups * s.kh * s.kw, 1, s.ic / s.groups};
}

/// y = x * w + bias with x and y channels-last; f16 and bf16. False, with nothing done, for sizes or cards that these
/// kernels do not hold; as in the next two.
bool boxes_forward(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* w,
                   const FilterLayout& layout, const void* bias, void* y);
/// x = the transpose applied to y, + bias; four phases (products of the strides) at most, each of which has taps.
bool boxes_transpose(const cpu::ConvSizes& s, DType t, Device device, const void* y, const void* w,
                     const FilterLayout& layout, const void* bias, void* x);
/// w (row-major) = the gradient of <y, conv_forward(x, w)>, x and y channels-last.
bool boxes_weight(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w);

}  // namespace strata::conv_cuda
