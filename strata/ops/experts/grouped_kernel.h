#pragma once
// Products by groups of rows, on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// grouped_linear: y[n, m] = sum_k x[n, k] w[e, m, k]. grouped_outer: y[e, m, k] = sum_n g[n, m] x[n, k].
struct GroupedCall {
  DType dtype = DType::f32;
  int64_t n = 0, m = 0, k = 0, groups = 0;
  const void* a = nullptr;  ///< x, or g
  int64_t a_row = 0, a_col = 0;
  const void* b = nullptr;  ///< w with its strides of e, m, k; or x with those of n (as b_group, unused), n, k
  int64_t b_group = 0, b_row = 0, b_col = 0;
  void* y = nullptr;  ///< contiguous
  const int64_t* offsets = nullptr;
};

void grouped_linear_cpu(const GroupedCall& c);
void grouped_outer_cpu(const GroupedCall& c);
void grouped_linear_cuda(const GroupedCall& c);
void grouped_outer_cuda(const GroupedCall& c);

}  // namespace strata
