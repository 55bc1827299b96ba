#pragma once
// Products over windows of images with their channels innermost. The copy engine brings pixels in two ways:
//
// - a box of 8 columns by some rows of an image, with the rows above and below that a column of taps reaches: the taps
//   of a column find theirs some times 1024 bytes further, since eight pixels of 64 channels are one unit of the
//   swizzle. Small images stand on top of each other in a box, the zeros between two of them once. With a stride of 2
//   the rows and columns of one parity are an image of their own, and every other tap reads it.
// - a run of pixels over rows and images (im2col), for each tap anew: any stride, nothing wasted on small images.
//
// What lies outside of an image comes as zeros in both.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/cuda/tile/single.cuh"
#include "strata/ops/conv/conv_boxes_cuda.h"
#include "strata/ops/conv/conv_divisor.cuh"
#ifndef STRATA_TILE_EMULATION
#include "strata/ops/conv/conv_cuda.cuh"
#endif

namespace strata::conv_cuda {
using cpu::ConvSizes;
using cuda::FastDivisor;

using namespace cuda::tile;

inline constexpr int kUnit = 1024;          // bytes of eight rows of 128
inline constexpr int kMostShared = 231000;  // of a block, its barriers left out
inline constexpr int kMostStages = 8;

/// Which pixels a box has.
struct Places {
  bool runs;                     // im2col
  int box_rows;                  // rows of 8 pixels; of a run 8 times as many pixels
  int images;                    // that stand on top of each other in a box
  int across, down;              // boxes of an image (or of so many); of runs: columns and rows of the result
  int step_y, step_x;            // strides, of runs
  FastDivisor by_image, by_row;  // boxes of an image, of a row; of runs: pixels
};
struct Place {
  int n, y, x;
};
/// The first pixel of a box in the result.
__device__ __forceinline__ Place place_of(const Places& p, int box) {
  const int at = p.runs ? box * p.box_rows * 8 : box;
  const int n = static_cast<int>(p.by_image.divide(static_cast<uint32_t>(at)));
  const int rest = at - n * p.down * p.across, y = static_cast<int>(p.by_row.divide(static_cast<uint32_t>(rest)));
  const int x = rest - y * p.across;
  return p.runs ? Place{n, y, x} : Place{n * p.images, y * p.box_rows, x * 8};
}

#ifndef STRATA_TILE_EMULATION
/// Starts the copy of a run of pixels from (x, y) on of image n, moved by (right, down) pixels; channels from `c` on.
__device__ __forceinline__ void copy_run_in(void* to, const CUtensorMap& map, uint64_t* barrier, int c, int x, int y,
                                            int n, int right, int down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n), "h"(static_cast<uint16_t>(right)),
      "h"(static_cast<uint16_t>(down))
      : "memory");
}
#else
inline void copy_run_in(void*, const CUtensorMap&, uint64_t*, int, int, int, int, int, int) {
  cuda::tile::emulation::block->fail("runs of pixels are not emulated");
}
#endif

/// A ring whose number of buffers is known when it runs.
struct Buffers {
  int count, stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ explicit Buffers(int n) : count(n) {}
  __device__ __forceinline__ void next() {
    if (++stage == count) stage = 0, parity ^= 1;
  }
};

// ---- on the host ----

/// A tensor [n, rows, columns, channels] with strides in elements, and how many of each a copy takes; 64 channels.
struct BoxMap {
  int64_t channels, columns, rows, n;
  int64_t column, row, image;  // strides
  int box_columns, box_rows, box_images = 1;
  int64_t offset = 0;  // of its first element, in elements
};

#ifndef STRATA_TILE_EMULATION
/// Whether the driver makes tensor maps, and these kernels are built for the card.
bool copies_boxes();
CUtensorMap box_map(DType t, const void* data, const BoxMap& m);
/// A map of a dense image [n, height, width, channels] for runs of `pixels` pixels of 64 channels.
CUtensorMap run_map(const ConvSizes& s, DType t, const void* data, int pixels);
/// Whether sizes and addresses are such as the copy engine takes.
bool fits_boxes(const ConvSizes& s, DType t, Device device, const void* x, const void* y);
#endif
/// Whether runs of pixels of x can be copied: small windows, as high as wide.
inline bool fits_runs(const ConvSizes& s) {
  // Corners of a map are 8 bits, strides 3; square windows, as the corners' order is not written down anywhere. Maps of
  // tensors below 128 KiB are wrong in some drivers.
  return s.ph == s.pw && s.ph >= -100 && s.ph - (s.kh - 1) * s.dh >= -100 && (s.kh - 1) * s.dh == (s.kw - 1) * s.dw &&
         s.ph <= 100 && (s.kh - 1) * s.dh <= 100 && s.sh <= 8 && s.sw <= 8 && s.n * s.ih * s.iw * s.ic >= 65536 + 64;
}

}  // namespace strata::conv_cuda
