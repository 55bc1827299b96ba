#pragma once
// What the kernels of convolutions on Hopper's tensor cores share: operands with their channels innermost.

#include "strata/ops/conv/conv_cuda.cuh"
#include "strata/ops/conv/conv_stage.cuh"

namespace strata::conv_cuda {

/// Channels, and zeros to a multiple of 16 bytes.
int pad_channels(int64_t channels, DType t);
/// [images, groups, channels, pixels] with channels innermost and padded to 16 bytes.
Tensor turn(DType t, Device device, const void* from, int64_t images, int64_t groups, int64_t channels, int64_t pixels);
/// The same for operands that have their channels innermost already where `last` says so: `given` itself where they are
/// whole pieces of 16 bytes, else in `keep`.
const void* innermost(DType t, Device device, const void* given, int64_t images, int64_t groups, int64_t channels,
                      int64_t pixels, bool last, Tensor& keep);
/// Filters [oc, channels, taps] with channels innermost; `given` itself where they are already, else in `keep`.
const void* turn_filters(DType t, Device device, const void* given, int64_t oc, int64_t channels, int64_t taps,
                         Tensor& keep);
/// w [oc, icg, taps] = the shares' sums [share, oc, taps, padded], added up in their order and rounded.
void add_filter_shares(const ConvSizes& s, DType t, const float* sums, int shares, int taps, int padded, void* w);
/// Whether the card, the dtype, and sizes that the kernels' 32-bit numbers hold allow these kernels.
bool fits_hopper(const ConvSizes& s, DType t, Device device);

}  // namespace strata::conv_cuda
