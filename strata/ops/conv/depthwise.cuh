#pragma once
// Depthwise convolutions by tiles, for those that depthwise.cu gives away.

#include "strata/ops/conv/conv_cuda.cuh"

namespace strata::conv_cuda {

/// Whether tiles take a convolution: one filter a channel, square of 3, 5 or 7, stride and dilation 1, padding below
/// the filter's size, and no f64.
bool fits_tiles(const ConvSizes& s, DType t);
void depthwise_tiles_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
void depthwise_tiles_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
/// Sums of each share of the images: sums[share, channel, tap].
void depthwise_tiles_weight(const ConvSizes& s, DType t, const void* x, const void* y, int64_t shares, float* sums);

}  // namespace strata::conv_cuda
