#pragma once
// The gradient of weight_norm on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// For each of `rows` rows of n elements: along = the sum of gy * v, gg = along / |v| and gv = g / |v| (gy - v along /
/// |v|^2); row-major, of one floating dtype, sums in f32 or f64.
void weight_norm_backward_cpu(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n, void* gv,
                              void* gg);

}  // namespace strata
