#pragma once
// Rotary position embedding on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// x is [outer..., time, d]: up to three outer sizes, strides in elements, the last dimension contiguous. Pair i of row
/// t is turned by the angle whose cosine and sine are cos[t][i], sin[t][i] (f32, f64 for f64; [time, pairs]
/// contiguous); elements from 2 * pairs on are copied. `interleaved`: pairs are (2i, 2i + 1), else (i, i + pairs).
/// `inverse` turns back. Indices from `turned` on of the last outer size are copied.
struct RotaryCall {
  DType dtype = DType::f32;
  int64_t outer[3] = {1, 1, 1}, time = 0, d = 0, pairs = 0;
  int64_t x_stride[4] = {}, y_stride[4] = {};  // of outer[0..2] and time
  int64_t turned = INT64_MAX;
  bool interleaved = false, inverse = false;
  const void *x = nullptr, *cos = nullptr, *sin = nullptr;
  void* y = nullptr;
};
void rotary_cpu(const RotaryCall& c);
/// The same on the current CUDA device.
void rotary_cuda(const RotaryCall& c);

}  // namespace strata
