// Which kernel runs a convolution whose images have their channels innermost.

#include "strata/core/channels_last.h"
#include "strata/ops/conv/conv_boxes_cuda.h"
#include "strata/ops/conv/conv_cuda.cuh"
#include "strata/ops/conv/depthwise.cuh"
#include "strata/ops/matmul/gemm_cuda.h"

namespace strata {

using namespace conv_cuda;

namespace {

// A filter as kernels take it: as it lies where it is row-major or channels-last.
struct Filter {
  Tensor kept;
  FilterLayout layout;

  Filter(const ConvSizes& s, const Tensor& w) : kept(is_channels_last(w) ? w : w.contiguous()) {
    layout = kept.is_contiguous() ? row_major_filter(s) : channels_last_filter(s);
  }
  const void* data() const { return kept.raw_data(); }
};

bool is_plain(const ConvSizes& s) {
  return is_pointwise(s) && s.groups == 1;
}

}  // namespace

bool conv_forward_last_cuda(const ConvSizes& s, DType t, Device device, const void* x, const Tensor& w,
                            const void* bias, void* y) {
  if (s.n * s.oc * s.oh * s.ow == 0) return true;
  if (is_depthwise(s)) return depthwise_last_forward(s, t, x, w.contiguous().raw_data(), bias, y);
  const Filter f(s, w);
  if (is_plain(s)) {
    Gemm g;
    g.in = g.out = t;
    g.m = s.n * s.oh * s.ow, g.n = s.oc, g.k = s.ic;
    g.a = x, g.a_row = s.ic, g.a_col = 1;
    g.b = f.data(), g.b_row = 1, g.b_col = s.ic;
    g.c = y, g.c_row = s.oc;
    g.bias = bias, g.bias_dtype = t;
    cuda::gemm(g, device);
    return true;
  }
  if (boxes_forward(s, t, device, x, f.data(), f.layout, bias, y)) return true;
  const Tensor filter = w.contiguous();
  return hopper_forward(s, t, device, x, filter.raw_data(), bias, y, true);
}

bool conv_transpose_last_cuda(const ConvSizes& s, DType t, Device device, const void* y, const Tensor& w,
                              const void* bias, void* x) {
  if (s.n * s.ic * s.ih * s.iw == 0) return true;
  if (is_depthwise(s)) return depthwise_last_transpose(s, t, y, w.contiguous().raw_data(), bias, x);
  const Filter f(s, w);
  if (is_plain(s)) {
    Gemm g;
    g.in = g.out = t;
    g.m = s.n * s.ih * s.iw, g.n = s.ic, g.k = s.oc;
    g.a = y, g.a_row = s.oc, g.a_col = 1;
    g.b = f.data(), g.b_row = s.ic, g.b_col = 1;
    g.c = x, g.c_row = s.ic;
    g.bias = bias, g.bias_dtype = t;
    cuda::gemm(g, device);
    return true;
  }
  if (boxes_transpose(s, t, device, y, f.data(), f.layout, bias, x)) return true;
  const Tensor filter = w.contiguous();
  return hopper_transpose(s, t, device, y, filter.raw_data(), bias, x, true);
}

bool conv_weight_last_cuda(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (s.oc * s.ic * s.kh * s.kw == 0 || s.n * s.oh * s.ow == 0) return false;
  if (is_depthwise(s)) return depthwise_last_weight(s, t, device, x, y, w);
  if (boxes_weight(s, t, device, x, y, w)) return true;
  if (is_plain(s)) {
    Gemm g;
    g.in = g.out = t;
    g.m = s.oc, g.n = s.ic, g.k = s.n * s.oh * s.ow;
    g.a = y, g.a_row = 1, g.a_col = s.oc;
    g.b = x, g.b_row = s.ic, g.b_col = 1;
    g.c = w, g.c_row = s.ic;
    cuda::gemm(g, device);
    return true;
  }
  return hopper_weight(s, t, device, x, y, w, true);
}

}  // namespace strata
