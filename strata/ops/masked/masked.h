#pragma once
// Reductions and normalisations over the elements that a mask keeps.

#include <string_view>

#include "strata/core/tensor.h"

namespace strata {

/// Of the elements that `mask` (bool, broadcast with x; undefined: all) keeps, over `dims` (empty: all): "sum" (0 of
/// none), "prod" (1), "amax", "amin", "argmax", "argmin" (of an edge of the dtype), "mean", "var", "std" (NaN of none;
/// divided by the number less `correction`), "norm" of order `ord`, "logsumexp" (-inf). Throws ValueError, DTypeError,
/// ShapeError.
Tensor masked_reduce(const Tensor& x, const Tensor& mask, std::string_view reduction, const Dims& dims = {},
                     bool keepdim = false, double correction = 1, double ord = 2);
/// Along `dim`, of the elements that `mask` keeps: "softmax", "softmin" (0 for the others; NaN of none), "log_softmax",
/// "cumsum", "cumprod" (the others count as 0, and as 1), "normalize" (x over its norm of order `ord`, at least `eps`).
/// Throws ValueError, DTypeError, ShapeError.
Tensor masked_along(const Tensor& x, const Tensor& mask, std::string_view function, int64_t dim, double ord = 2,
                    double eps = 1e-12);

}  // namespace strata
