#pragma once
// Products of batches that both broadcast, C[p, q, m, n] = A[p, 1, m, k] B[q, k, n]: every matrix of A times every one
// of B, which is a single product of A's rows, [p m, k], and B's columns, [k, q n], with its dims in another order.

#include <optional>

#include "strata/core/tensor.h"
#include "strata/ops/view/view.h"

namespace strata::products {

/// Which dims of the result's batch are A's and which B's.
struct OuterBatch {
  Dims of_a, of_b;
  int64_t m = 1, k = 1, n = 1;
  Shape sizes_a, sizes_b;

  /// [.., m, n] of the whole batch as [dims of A, m, dims of B, n]: a view.
  Tensor apart(const Tensor& y) const {
    Dims order = of_a;
    order.push_back(y.dim() - 2);
    for (const int64_t d : of_b) order.push_back(d);
    order.push_back(y.dim() - 1);
    return permute(y, order);
  }
  /// A's rows [p m, k] and B's columns [k, q n]; A's are a view where it is contiguous.
  Tensor rows(const Tensor& a) const { return reshape(a, {sizes_a.product() * m, k}); }
  Tensor columns(const Tensor& b) const {
    return reshape(permute(reshape(b, {sizes_b.product(), k, n}), {1, 0, 2}), {k, sizes_b.product() * n});
  }
  /// [p m, q n] as apart() has it.
  Shape apart_shape() const {
    Shape s = sizes_a;
    s.push_back(m);
    for (const int64_t size : sizes_b) s.push_back(size);
    s.push_back(n);
    return s;
  }
};

/// Nothing where a dim of the batch is longer than 1 in both, or one operand has no batch of its own.
inline std::optional<OuterBatch> outer_batch(const Tensor& a, const Tensor& b) {
  if (a.dim() < 2 || b.dim() < 2) return std::nullopt;
  const int64_t dims = std::max(a.dim(), b.dim()) - 2;
  OuterBatch o;
  o.m = a.shape()[a.dim() - 2], o.k = a.shape().back(), o.n = b.shape().back();
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t at_a = d - (dims - (a.dim() - 2)), at_b = d - (dims - (b.dim() - 2));
    const int64_t size_a = at_a < 0 ? 1 : a.shape()[at_a], size_b = at_b < 0 ? 1 : b.shape()[at_b];
    if (size_a != 1 && size_b != 1) return std::nullopt;
    if (size_b == 1) {
      o.of_a.push_back(d);
      o.sizes_a.push_back(size_a);
    } else {
      o.of_b.push_back(d);
      o.sizes_b.push_back(size_b);
    }
  }
  if (o.sizes_a.product() < 2 || o.sizes_b.product() < 2) return std::nullopt;
  return o;
}

}  // namespace strata::products
