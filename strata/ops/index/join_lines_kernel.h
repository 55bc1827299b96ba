#pragma once
#include "strata/core/tensor.h"
#include "strata/ops/index/join_inl.h"

namespace strata {

/// y += src at the places that index (i64) names along dim, joined as `join` says, in the order of the elements: y is
/// row-major and holds what was there before; index and src have one shape, of y's rank and no longer than y in the
/// other dimensions. Without include_self what was there does not count where something is sent. A place out of range
/// is told of and left out.
void join_lines_cuda(Tensor& y, int64_t dim, const Tensor& index, const Tensor& src, Join join, bool include_self);
/// Whether that is the fast way for these shapes; else places are better sorted: lines are few, or long.
bool joins_lines(const Tensor& y, int64_t dim, const Tensor& index);

}  // namespace strata
