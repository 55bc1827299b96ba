#pragma once
// Tensors that count: ranges, identity matrices and the indices of triangles. Made on default_device().

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// 0, 1, ... below `end`. Without a dtype: i64 when every argument is an integer, else default_dtype().
Tensor arange(Scalar end, std::optional<DType> dtype = {});
/// start, start + step, ... before `end`. Throws ValueError when step is 0 or leads away from `end`.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, std::optional<DType> dtype = {});
/// `steps` values at equal distances from `start` to `end`, both included.
Tensor linspace(Scalar start, Scalar end, int64_t steps, std::optional<DType> dtype = {});
/// base^start to base^end, `steps` values with equal distances between their exponents.
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base = 10, std::optional<DType> dtype = {});
/// [n, m] (m = n when not given) with ones on the main diagonal, zeros elsewhere.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, std::optional<DType> dtype = {});
/// [2, k] i64: row and column of each element on and below (tril) or above (triu) the `offset`-th diagonal of a
/// [rows, cols] matrix, in row-major order.
Tensor tril_indices(int64_t rows, int64_t cols, int64_t offset = 0);
Tensor triu_indices(int64_t rows, int64_t cols, int64_t offset = 0);

}  // namespace strata
