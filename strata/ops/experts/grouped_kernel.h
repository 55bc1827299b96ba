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
  void* y = nullptr;
  int64_t y_row = 0;  ///< its rows, of all groups, lie so far apart; their elements side by side
  const int64_t* offsets = nullptr;
};

void grouped_linear_cpu(const GroupedCall& c);
void grouped_outer_cpu(const GroupedCall& c);
void grouped_linear_cuda(const GroupedCall& c);
void grouped_outer_cuda(const GroupedCall& c);

namespace cuda {
/// Queues grouped_linear, or grouped_outer, of bf16 or f16 on the current stream, by tensor cores. False, with nothing
/// queued, where the kernels do not fit: another card or dtype, a sum of no terms, rows that are not whole multiples of
/// 16 bytes apart, operands that are not contiguous along rows or columns.
bool grouped_tiles(const GroupedCall& c, bool outer);
/// Whether it would, were the rows 16 bytes apart.
bool has_grouped_tiles(DType t);
}  // namespace cuda

}  // namespace strata
