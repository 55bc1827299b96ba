#pragma once
// Other elements under a tensor that others hold.

#include "strata/core/tensor.h"

namespace strata {

/// Every handle to `t` shows the elements of `source` from now on, with their shape, dtype and device. Gradient,
/// history and what a view is of stay `t`'s: whoever rebinds sees to them.
inline void rebind(const Tensor& t, const Tensor& source) {
  TensorImpl& to = t.impl();
  const TensorImpl& from = source.impl();
  to.storage = from.storage;
  to.shape = from.shape;
  to.strides = from.strides;
  to.offset = from.offset;
  to.numel = from.numel;
  to.dtype = from.dtype;
  to.device = from.device;
  to.contiguous = from.contiguous;
}

}  // namespace strata
