#pragma once
// What a decomposition of matrices without elements is, on any device.

#include <initializer_list>

#include "strata/ops/linalg/records.h"

namespace strata::linalg {

/// Whether A has no elements; its orthogonal factors, those of `factors` that are there, are then identities.
inline bool factors_of_nothing(const Tensor& A, std::initializer_list<Tensor*> factors) {
  if (A.numel() > 0) return false;
  for (Tensor* t : factors)
    if (t && t->numel() > 0) t->copy_(identity(A, cols(*t)));
  return true;
}

}  // namespace strata::linalg
