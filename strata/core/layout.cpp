#include "strata/core/layout.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace detail {

std::optional<Strides> kept_strides(const Tensor* const* operands, int count) {
  const Shape& shape = operands[0]->shape();
  const int dims = shape.size();
  if (dims < 2 || operands[0]->numel() == 0) return std::nullopt;
  // 1 where dim `outer`, which would lie outside, belongs inside; -1 where it is right; 0 where nothing tells.
  const auto misplaced = [&](int outer, int inner) {
    for (int k = 0; k < count; ++k) {
      const int64_t a = operands[k]->strides()[outer], b = operands[k]->strides()[inner];
      if (a == 0 || b == 0 || a == b) continue;
      return a < b ? 1 : -1;
    }
    return 0;
  };
  int order[kMaxDims], used = 0;  // outermost first; dims of size 1 have no place
  for (int d = 0; d < dims; ++d)
    if (shape[d] != 1) order[used++] = d;
  for (int i = used - 2; i >= 0; --i) {
    for (int at = i, j = i + 1; j < used; ++j) {
      const int m = misplaced(order[at], order[j]);
      if (m < 0) break;
      if (m == 0) continue;
      std::swap(order[at], order[j]);
      at = j;
    }
  }
  if (std::is_sorted(order, order + used)) return std::nullopt;
  Strides s = Strides::filled(dims, 1);
  int64_t step = 1;
  for (int i = used - 1; i >= 0; --i) {
    s[order[i]] = step;
    step *= shape[order[i]];
  }
  // A dim of size 1 lies where its right neighbour ends, as in a row-major tensor.
  for (int d = dims - 1; d >= 0; --d)
    if (shape[d] == 1) s[d] = d + 1 < dims ? s[d + 1] * shape[d + 1] : 1;
  return s;
}

}  // namespace detail

bool lie_alike(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  if (a.is_contiguous() || b.is_contiguous()) return a.is_contiguous() && b.is_contiguous();
  int dims = 0;
  std::pair<int64_t, int64_t> steps[kMaxDims];  // strides and sizes
  for (int d = 0; d < a.shape().size(); ++d) {
    if (a.shape()[d] == 1) continue;
    if (a.strides()[d] != b.strides()[d]) return false;
    steps[dims++] = {a.strides()[d], a.shape()[d]};
  }
  std::sort(steps, steps + dims);
  int64_t step = 1;
  for (int i = 0; i < dims; step *= steps[i++].second)
    if (steps[i].first != step) return false;
  return true;
}

}  // namespace strata
