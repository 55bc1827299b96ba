#pragma once
#include "strata/core/tensor.h"

namespace strata {
/// y = the tensors joined along dim, `tensors` as cat takes them, in a launch for every 64. False, with nothing queued,
/// where y or one of them is not row-major, or they are too large for 32-bit places.
bool cat_at_once_cuda(const Tensor& y, const TensorList& tensors, int64_t dim);
/// cat where every tensor has one element along the last dimension and y is row-major: few columns that become rows.
/// False, with nothing done, for others.
bool cat_columns_cpu(const Tensor& y, const TensorList& tensors, int64_t dim);

}  // namespace strata
