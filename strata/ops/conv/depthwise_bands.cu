// Launches of depthwise_bands.cuh.

#include "strata/ops/conv/conv_choice_cuda.h"
#include "strata/ops/conv/depthwise_dispatch.cuh"

namespace strata::conv_cuda {

using namespace bands;

namespace {

unsigned blocks_of_bands(const BandTiling& t) {
  return static_cast<unsigned>(t.channels) * static_cast<unsigned>(t.shares);
}

void queue_forward(const BandTiling& tiling, DType t, int64_t k, bool turned, const void* x, const void* w,
                   const void* bias, void* y) {
  dispatch_bands(t, k, [&]<class E, int K>() {
    by_blocks(tiling.w, [&](auto blocks) {
      band_forward_kernel<E, K, decltype(blocks)::value>
          <<<blocks_of_bands(tiling), kBandThreads, static_cast<size_t>(tiling.forward_bytes()), stream()>>>(
              tiling, turned, static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(w),
              static_cast<const typename E::T*>(bias), static_cast<uint16_t*>(y));
    });
  });
}

}  // namespace

bool fits_bands(const ConvSizes& s, DType t) {
  return fits_tiles(s, t) && (t == DType::bf16 || t == DType::f16) && conv_choice().depthwise != 0;
}

void depthwise_bands_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y) {
  const int k = static_cast<int>(s.kh);
  queue_forward(band_tiling(s.n, s.oc, s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, k, x, y, multiprocessors()), t, s.kh, false,
                x, w, bias, y);
}

void depthwise_bands_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  const int k = static_cast<int>(s.kh);
  queue_forward(band_tiling(s.n, s.oc, s.oh, s.ow, s.ih, s.iw, k - 1 - s.ph, k - 1 - s.pw, k, y, x, multiprocessors()),
                t, s.kh, true, y, w, bias, x);
}

int64_t depthwise_bands_shares(const ConvSizes& s) {
  return band_tiling(s.n, s.oc, s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, static_cast<int>(s.kh), nullptr, nullptr,
                     multiprocessors())
      .shares;
}

void depthwise_bands_weight(const ConvSizes& s, DType t, const void* x, const void* y, float* sums) {
  const BandTiling tiling =
      band_tiling(s.n, s.oc, s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, static_cast<int>(s.kh), x, y, multiprocessors());
  dispatch_bands(t, s.kh, [&]<class E, int K>() {
    band_weight_kernel<E, K>
        <<<blocks_of_bands(tiling), kBandThreads, static_cast<size_t>(tiling.weight_bytes(K)), stream()>>>(
            tiling, static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(y), sums);
  });
}

}  // namespace strata::conv_cuda
