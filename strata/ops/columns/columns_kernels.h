#pragma once
// Windows as columns on raw memory.

#include <cstdint>

#include "strata/core/dispatch.h"

namespace strata {
namespace columns {

/// One dimension of images and windows.
struct Side {
  int64_t size = 1, windows = 1;
  int64_t kernel = 1, dilation = 1, padding = 0, stride = 1;
};
/// Rows and columns of `planes` images.
struct Geometry {
  int64_t planes = 0;
  Side h, w;
};

/// Calls f.operator()<T>() for every dtype but bool.
template <class F>
void dispatch_numbers(DType t, F&& f) {
  if (is_floating(t)) return dispatch_floats(t, "col2im", f);
  dispatch_ints(t, "col2im", f);
}

}  // namespace columns

namespace cpu {
/// y [planes, kh, kw, windows of rows, of columns] from x [planes, h, w]. Any dtype.
void im2col(const columns::Geometry& g, DType t, const void* x, void* y);
/// x from y: the sums of what was taken from each place, in the kernel's order. Any dtype but bool.
void col2im(const columns::Geometry& g, DType t, const void* y, void* x);
}  // namespace cpu

// The same on a CUDA device's memory, on its current stream.
void im2col_cuda(const columns::Geometry& g, DType t, const void* x, void* y);
void col2im_cuda(const columns::Geometry& g, DType t, const void* y, void* x);

}  // namespace strata
