#pragma once
// Convolution kernels on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/core/parallel.h"

namespace strata::cpu {

/// One convolution: x [n, ic, ih, iw], w [oc, ic / groups, kh, kw], y [n, oc, oh, ow], all row-major.
/// A one-dimensional one has ih = kh = oh = 1. `ph` and `pw` zeros stand on each side of x.
struct ConvSizes {
  int64_t n, ic, oc, groups, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
};

/// y = x * w + bias; bias [oc] or nullptr, of the same dtype. Any floating dtype, as in the next two.
void conv_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y);
/// x = the transpose of the above applied to y, + bias [ic] or nullptr.
void conv_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x);
/// w = the gradient of <y, conv_forward(x, w)>.
void conv_weight(const ConvSizes& s, DType t, const void* x, const void* y, void* w);

namespace detail {
/// out[i] = the sum of sums[p * size + i] over the parts p, in their order.
template <class T>
void add_parts(const T* sums, int64_t parts, int64_t size, T* out) {
  parallel_for(0, size, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T total = 0;
      for (int64_t p = 0; p < parts; ++p) total += sums[p * size + i];
      out[i] = total;
    }
  });
}

enum class ConvKind : int64_t { forward, transpose, weight };
/// oneDNN's convolution for f32 and bf16, without bias unless forward; false, with nothing done, where it has none.
/// `result` may be f32 where t is bf16.
bool conv_onednn(ConvKind kind, const ConvSizes& s, DType t, DType result, const void* first, const void* second,
                 const void* bias, void* out);
}  // namespace detail

}  // namespace strata::cpu
