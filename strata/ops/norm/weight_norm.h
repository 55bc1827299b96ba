#pragma once
// Weights as lengths times directions.

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// The p-norms of v over all dimensions but `dim`, which stay with size 1; of all elements without one or with -1.
/// Throws IndexError.
Tensor norm_except_dim(const Tensor& v, double p = 2, std::optional<int64_t> dim = 0);
/// v with the lengths g in place of its own, norm_except_dim(v, 2, dim) (arXiv:1602.07868). Throws IndexError.
Tensor weight_norm(const Tensor& v, const Tensor& g, std::optional<int64_t> dim = 0);

}  // namespace strata
