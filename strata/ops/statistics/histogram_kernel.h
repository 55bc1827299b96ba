#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// How many points [n, columns] (f32 or f64), or how much of their weight [n], lie between neighbours of each column's
/// edges, row-major in one row of `parts` numbers; the last part of a column holds its upper edge too. On the CPU.
Tensor histogramdd_cpu(const Tensor& points, const TensorList& edges, const Tensor& weight, int64_t parts);

/// How many elements of x lie in each of `bins` equal parts of [low, high], i64. In a build with CUDA.
Tensor histc_cuda(const Tensor& x, int64_t bins, double low, double high);

}  // namespace strata
