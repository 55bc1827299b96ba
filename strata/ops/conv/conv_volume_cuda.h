#pragma once
// Convolutions of volumes on a CUDA device's tensor cores, on its current stream, without copies of windows. Every
// result has the same bits every time.

#include <array>

#include "strata/core/tensor.h"
#include "strata/ops/conv/conv_kernels.h"

namespace strata::conv_cuda {
using cpu::ConvSizes;

/// A convolution of volumes, [n, ic, in] to [n, oc, out], with filters [oc, ic / groups, kernel]; sizes of depth,
/// height and width. Images have a depth of 1.
struct VolumeSizes {
  int64_t n, ic, oc, groups;
  std::array<int64_t, 3> in, out, kernel, stride, padding, dilation;
  static int64_t product(const std::array<int64_t, 3>& a) { return a[0] * a[1] * a[2]; }
};
inline VolumeSizes as_volume(const ConvSizes& s) {
  return {s.n,
          s.ic,
          s.oc,
          s.groups,
          {1, s.ih, s.iw},
          {1, s.oh, s.ow},
          {1, s.kh, s.kw},
          {1, s.sh, s.sw},
          {0, s.ph, s.pw},
          {1, s.dh, s.dw}};
}

/// Whether the card, the dtype and the sizes allow what follows: Hopper, 16 bits or f32 where TF32 is allowed.
bool fits_volume(const VolumeSizes& s, DType t, Device device);
/// y [n, oc, out] = x * w + bias; bias [oc] or nullptr. `last`: x has its channels innermost, [n, in, ic]; everything
/// else is row-major. For sizes that fits_volume() takes, here and below; all pointers lie on `device`.
void volume_forward(const VolumeSizes& s, DType t, Device device, const void* x, bool last, const void* w,
                    const void* bias, void* y);
/// x [n, ic, in] = the transpose of the above applied to y, + bias [ic] or nullptr; `last` is y's.
void volume_transpose(const VolumeSizes& s, DType t, Device device, const void* y, bool last, const void* w,
                      const void* bias, void* x);

}  // namespace strata::conv_cuda
