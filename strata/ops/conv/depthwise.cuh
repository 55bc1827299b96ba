#pragma once
// Depthwise convolutions by tiles and by band matrices, for those that depthwise.cu gives away.

#include "strata/ops/conv/conv_cuda.cuh"

namespace strata::conv_cuda {

/// Whether tiles take a convolution: one filter a channel, square of 3, 5 or 7, stride and dilation 1, padding below
/// the filter's size, and no f64.
bool fits_tiles(const ConvSizes& s, DType t);
void depthwise_tiles_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
void depthwise_tiles_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
/// Sums of each share of the images: sums[share, channel, tap].
void depthwise_tiles_weight(const ConvSizes& s, DType t, const void* x, const void* y, int64_t shares, float* sums);

/// Whether band matrices on tensor cores take one that tiles take: bf16 and f16.
bool fits_bands(const ConvSizes& s, DType t);
void depthwise_bands_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
void depthwise_bands_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
/// How many shares the images are in, and sums[share, channel, tap] of each.
int64_t depthwise_bands_shares(const ConvSizes& s);
void depthwise_bands_weight(const ConvSizes& s, DType t, const void* x, const void* y, float* sums);

/// w = the sums [share, size] added up in their order; 16 bits.
void add_depthwise_shares(DType t, int64_t size, int64_t shares, const float* sums, void* w);

/// The same three where x and y have their channels innermost and these are a multiple of 8; w is row-major. False,
/// with nothing done, for what they do not take.
bool depthwise_last_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
bool depthwise_last_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
bool depthwise_last_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w);

}  // namespace strata::conv_cuda
