#pragma once
// Convolution kernels of a CUDA device, on its current stream. `s` and the operands are those of conv_kernels.h; all
// pointers lie on `device`. Every result has the same bits every time.

#include "strata/core/tensor.h"
#include "strata/ops/conv/conv_kernels.h"

namespace strata {

/// y = x * w + bias; bias [oc] or nullptr.
void conv_forward_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias,
                       void* y);
/// x = the transpose of the above applied to y, + bias [ic] or nullptr.
void conv_transpose_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* y, const void* w,
                         const void* bias, void* x);
/// w = the gradient of <y, conv_forward(x, w)>.
void conv_weight_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w);

/// The same three where x and y have their channels innermost, [n, ih, iw, ic] and [n, oh, ow, oc]; w is best
/// row-major or channels-last, its gradient is row-major. False, with nothing done, where there is no kernel for that.
bool conv_forward_last_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* x, const Tensor& w,
                            const void* bias, void* y);
bool conv_transpose_last_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* y, const Tensor& w,
                              const void* bias, void* x);
bool conv_weight_last_cuda(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w);

namespace conv_cuda {
/// Whether the windows are the input itself: a kernel of 1 x 1 that moves by one.
inline bool is_pointwise(const cpu::ConvSizes& s) {
  return s.kh == 1 && s.kw == 1 && s.sh == 1 && s.sw == 1 && s.ph == 0 && s.pw == 0;
}
/// Whether each input channel has a filter of its own for at most a few outputs: no matrix product is worth it. Planes
/// and options must fit 32 bits.
inline bool is_depthwise(const cpu::ConvSizes& s) {
  constexpr int64_t kMost = int64_t{1} << 29;
  return s.ic == s.groups && s.oc <= 32 * s.groups && s.ih * s.iw < kMost && s.oh * s.ow < kMost && s.ph < kMost &&
         s.pw < kMost && s.kh * s.dh < kMost && s.kw * s.dw < kMost && s.sh < kMost && s.sw < kMost;
}
/// Every plane of [n, channels, plane] filled with its channel's bias, or zeros where there is none.
void fill(DType t, const void* bias, int64_t n, int64_t channels, int64_t plane, void* to);
void depthwise_forward(const cpu::ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
void depthwise_transpose(const cpu::ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
void depthwise_weight(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w);
/// Hopper's tensor cores, for f16, bf16 and, where TF32 is allowed, f32 (of the last one only where the kernel is 1 x 1
/// and moves by one). False, with nothing done, on another card, for another dtype, or for sizes that their kernels do
/// not hold. `last`: x and y have their channels innermost, and w is row-major.
bool hopper_forward(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias,
                    void* y, bool last = false);
bool hopper_transpose(const cpu::ConvSizes& s, DType t, Device device, const void* y, const void* w, const void* bias,
                      void* x, bool last = false);
bool hopper_weight(const cpu::ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w,
                   bool last = false);
}  // namespace conv_cuda

}  // namespace strata
