#pragma once
// Writing and joining elements by place, and asking which are there. Included by strata/ops/index/index.h.

#include <string_view>

#include "strata/core/tensor.h"

namespace strata {

/// @name Slices and elements by place
/// @{
/// x with its slices index[i] along `dim` (1-D or 0-dim i64 or i32; negative ones count from the end) filled with the
/// only element of `value`, converted to x's dtype. Throws ShapeError, IndexError.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);
/// x with its slices index[i] along `dim` replaced by slice i of `source` (of x's dtype). Where an index comes twice
/// the later slice wins. Throws ShapeError, DTypeError, IndexError.
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// scatter_reduce() by slices: slice i of `source` is joined to slice index[i] along `dim` of x. `reduce` is "prod",
/// "mean", "amax" or "amin".
Tensor index_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self = true);
/// x with src[i][j][k] joined to x[index[i][j][k]][j][k] for dim 0, and so on, by `reduce`: "sum", "prod", "mean" (of
/// integers rounded down), "amax" or "amin". Without `include_self` what was there does not count where something is
/// sent. `src` may be larger than `index`. Throws ShapeError, DTypeError, ValueError, IndexError.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self = true);
/// x with the elements at places `index` of the flattened x replaced by (or, accumulating, increased by) those of
/// `source`, which has as many. Throws ShapeError, DTypeError, IndexError.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false);
/// The elements at places `index` of the flattened x, in index's shape; negative places count from the end.
Tensor take(const Tensor& x, const Tensor& index);
/// Whether each element is among `test_elements` (bool, of the shape of `elements`); `invert` for whether it is not.
/// NaN is among nothing. `assume_unique` changes nothing.
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool assume_unique = false, bool invert = false);
/// @}

}  // namespace strata
