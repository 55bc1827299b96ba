#pragma once
// Products over windows of images with their channels innermost. The copy engine brings pixels in two ways:
//
// - a box of 8 columns by some rows of an image, with the rows above and below that a column of taps reaches: the taps
//   of a column find theirs some times 1024 bytes further, since eight pixels of 64 channels are one unit of the
//   swizzle. Stride 1.
// - a run of pixels over rows and images (im2col), for each tap anew: any stride, nothing wasted on small images.
//
// What lies outside of an image comes as zeros in both.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/ops/conv/conv_boxes_cuda.h"
#include "strata/ops/conv/conv_cuda.cuh"

namespace strata::conv_cuda {

using namespace cuda::tile;

inline constexpr int kUnit = 1024;          // bytes of eight rows of 128
inline constexpr int kMostShared = 231000;  // of a block, its barriers left out
inline constexpr int kMostStages = 8;

/// Which pixels a box has.
struct Places {
  bool runs;                     // im2col
  int box_rows;                  // rows of 8 pixels; of a run 8 times as many pixels
  int across, down;              // boxes of an image; of runs: columns and rows of the result
  int first_y, first_x;          // of the window of result (0, 0), in the source
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
  return p.runs ? Place{n, y, x} : Place{n, y * p.box_rows, x * 8};
}

/// Starts the copy of a run of pixels from (x, y) on of image n, moved by (right, down) pixels; channels from `c` on.
__device__ __forceinline__ void copy_run_in(uint32_t to, const CUtensorMap& map, uint64_t* barrier, int c, int x, int y,
                                            int n, int right, int down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2], {%7, %8};" ::"r"(to),
      "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n), "h"(static_cast<uint16_t>(right)),
      "h"(static_cast<uint16_t>(down))
      : "memory");
}
__device__ __forceinline__ void copy_box_in(uint32_t to, const CUtensorMap& map, uint64_t* barrier, int c, int x, int y,
                                            int n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n)
      : "memory");
}

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

/// Whether the driver makes tensor maps, and these kernels are built for the card.
bool copies_boxes();
/// A map of a tensor [n, rows, columns, channels] with strides in elements for boxes of 64 channels.
struct BoxMap {
  int64_t channels, columns, rows, n;
  int64_t column, row, image;  // strides
};
CUtensorMap box_map(DType t, const void* data, const BoxMap& m, int box_columns, int box_rows);
/// A map of a dense image [n, height, width, channels] for runs of `pixels` pixels of 64 channels.
CUtensorMap run_map(const ConvSizes& s, DType t, const void* data, int pixels);
/// Whether runs of pixels of x can be copied: small windows, as high as wide.
bool fits_runs(const ConvSizes& s);
/// Whether sizes and addresses are such as the copy engine takes.
bool fits_boxes(const ConvSizes& s, DType t, Device device, const void* x, const void* y);

}  // namespace strata::conv_cuda
