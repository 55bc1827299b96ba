#pragma once
// How a reduction over any dimensions becomes one over the middle of three.

#include "strata/ops/copy/copy.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/memory_order_inl.h"
#include "strata/ops/view/view.h"

namespace strata {

/// [outer, n, inner] of a row-major tensor whose middle dimension is reduced.
struct ReduceLayout {
  Tensor data;
  int64_t outer = 1, n = 1, inner = 1;
  /// Whether data has gaps, and the steps of the three dimensions then, in elements (gapped_layout()).
  bool gaps = false;
  int64_t outer_step = 0, n_step = 0, inner_step = 0;
  bool pieces = false;  ///< outer is reduced too: the results of its rows are parts of a single one
};

/// With the reduced dimensions last (a copy unless they are), so that inner is 1.
inline ReduceLayout rows_layout(const Tensor& x, uint32_t mask) {
  ReduceLayout l;
  const Shape& s = x.shape();
  Dims order;
  for (int i = 0; i < s.size(); ++i)
    if (!(mask >> i & 1)) order.push_back(i), l.outer *= s[i];
  for (int i = 0; i < s.size(); ++i)
    if (mask >> i & 1) order.push_back(i), l.n *= s[i];
  l.data = contiguous(permute(x, order));
  return l;
}

/// In row-major order when the reduced dimensions are neighbours, as it lies where that is its own; else through a copy
/// with them last.
inline ReduceLayout reduce_layout(const Tensor& x, uint32_t mask) {
  ReduceLayout l;
  const Shape& s = x.shape();
  int first = -1, last = -1;
  for (int i = 0; i < s.size(); ++i) {
    if (!(mask >> i & 1) || s[i] == 1) continue;
    if (first < 0) first = i;
    last = i;
  }
  bool neighbours = true;
  for (int i = std::max(first, 0); i <= last; ++i) neighbours = neighbours && ((mask >> i & 1) || s[i] == 1);
  if (neighbours) {
    for (int i = 0; i < s.size(); ++i) (first < 0 || i < first ? l.outer : i <= last ? l.n : l.inner) *= s[i];
    l.data = contiguous(x);
    return l;
  }
  return rows_layout(x, mask);
}

/// reduce_layout() without a copy where x has gaps that are even within the reduced dimensions, and within what is left
/// before and after them, and neighbours lie within 16 bytes: a copy would read as many bytes, and write them besides.
/// With `pieces` also where all of x is reduced, in rows that lie apart unevenly.
inline ReduceLayout gapped_layout(const Tensor& x, uint32_t mask, bool pieces) {
  constexpr int64_t kNearBytes = 16, kLeastPiece = 64;
  if (x.is_contiguous() || x.numel() == 0) return reduce_layout(x, mask);
  int64_t sizes[3] = {1, 1, 1}, steps[3] = {};
  int part = 2;  // of outer, n, inner, from the last on
  bool cut = false;
  for (int d = x.dim() - 1; d >= 0; --d) {
    const int64_t size = x.shape()[d], step = x.strides()[d];
    if (size == 1) continue;
    const bool reduced = mask >> d & 1;
    if (cut) {
      if (!reduced) return reduce_layout(x, mask);
    } else if (part == 2 ? reduced : part == 1 && !reduced) {
      --part;
    } else if (part == 0 && reduced) {
      return reduce_layout(x, mask);
    }
    if (sizes[part] != 1 && step != steps[part] * sizes[part]) {
      if (cut || !pieces || part != 1 || sizes[2] != 1 || sizes[1] < kLeastPiece) return reduce_layout(x, mask);
      cut = true, part = 0;
    }
    if (sizes[part] == 1) steps[part] = step;
    sizes[part] *= size;
  }
  const int64_t nearest = sizes[2] != 1 ? steps[2] : steps[1];
  if (nearest * size_of(x.dtype()) > kNearBytes) return reduce_layout(x, mask);
  return {x, sizes[0], sizes[1], sizes[2], true, steps[0], steps[1], steps[2], cut};
}

/// A tensor and which of its dimensions are reduced.
struct Reduced {
  Tensor x;
  uint32_t mask = 0;
};
/// The same with the dimensions as they lie, where x has no gaps and the results stay in their order: what is reduced
/// needs no copy then, or a smaller one. Else as given.
inline Reduced as_it_lies(const Tensor& x, uint32_t mask) {
  if (x.is_contiguous()) return {x, mask};
  const Dims order = dims_in_memory(x);
  const Tensor turned = permute(x, order);
  if (!turned.is_contiguous()) return {x, mask};
  uint32_t of_turned = 0;
  int64_t last = -1;
  for (int i = 0; i < order.size(); ++i) {
    if (mask >> order[i] & 1) {
      of_turned |= 1u << i;
    } else if (turned.shape()[i] != 1) {
      if (order[i] < last) return {x, mask};
      last = order[i];
    }
  }
  return {turned, of_turned};
}

}  // namespace strata
