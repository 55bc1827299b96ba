#pragma once
// Images [n, c, h, w] whose channels lie innermost in memory: PyTorch's memory_format channels_last.

#include "strata/core/tensor.h"

namespace strata {

/// The strides of a dense tensor of this shape [n, c, h, w] with its channels innermost.
inline Strides channels_last_strides(const Shape& s) {
  return {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]};
}

/// Whether `t` is an image [n, c, h, w] that lies so, without gaps.
inline bool lies_channels_last(const Tensor& t) {
  if (!t.defined() || t.dim() != 4 || t.numel() == 0) return false;
  const Strides wanted = channels_last_strides(t.shape());
  for (int i = 0; i < 4; ++i)
    if (t.shape()[i] != 1 && t.strides()[i] != wanted[i]) return false;
  return true;
}

/// The same, and it is not row-major as well (as one of one channel or of one pixel is): what an op looks at to choose
/// its result's layout.
inline bool is_channels_last(const Tensor& t) {
  return t.defined() && !t.is_contiguous() && lies_channels_last(t);
}

/// `meta` [n, c, h, w] with its channels innermost.
inline TensorMeta channels_last(TensorMeta meta) {
  if (meta.shape.product() > 0) meta.strides = channels_last_strides(meta.shape);
  return meta;
}

/// `meta` [n, c, h, w] laid out as the image x.
inline TensorMeta laid_out_as(const Tensor& x, const TensorMeta& meta) {
  return is_channels_last(x) ? channels_last(meta) : meta;
}

/// The elements of an image as [n, h, w, c] in row-major order: those of `t` where they lie so, else a copy.
inline Tensor channels_innermost(const Tensor& t) {
  const Shape& s = t.shape();
  const Strides& x = t.strides();
  return alias(t, {s[0], s[2], s[3], s[1]}, {x[0], x[2], x[3], x[1]}, t.storage_offset()).contiguous();
}

}  // namespace strata
