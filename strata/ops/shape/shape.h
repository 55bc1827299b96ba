#pragma once
// Repeating, padding and rearranging tensors.

#include <optional>
#include <string_view>

#include "strata/core/tensor.h"
#include "strata/ops/join/join.h"
#include "strata/ops/shape/arrange.h"

namespace strata {

/// @name Repeating
/// @{
/// `x` as often as `repeats` says along each dimension; new leading dimensions where repeats is longer than x's shape.
Tensor repeat(const Tensor& x, const Dims& repeats);
/// The same with ones added in front of a short `repeats`.
Tensor tile(const Tensor& x, const Dims& repeats);
/// Each element along `dim` (of the flattened x without one) `repeats` times in a row.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
/// Element i along `dim` repeats[i] times; `repeats` is i64 of shape [n] or [1].
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// Alias of expand.
Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// 1-D tensors as coordinates of a grid: each expanded to the shape of all. `indexing` is "ij" or "xy" (the first two
/// dimensions exchanged).
TensorList meshgrid(const TensorList& tensors, std::string_view indexing = "ij");
/// @}

/// @name Rearranging
/// @{
/// Pads (a negative number crops): `pads` holds a pair (before, after) for the last dimension, then for the one before
/// it, and so on. Modes: "constant" (with `value`), "reflect" (without the edge), "replicate" (the edge), "circular".
Tensor pad(const Tensor& x, const Dims& pads, std::string_view mode = "constant", Scalar value = 0);
/// Elements moved by shifts[i] places along dims[i], those beyond the end coming back at the start; without dims the
/// flattened x is rolled.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
/// The order along each of `dims` reversed.
Tensor flip(const Tensor& x, const Dims& dims);
/// Dimension source[i] moved to place destination[i], the others in their order (a view).
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
/// The matrices of the last two dimensions with zeros above (tril) or below (triu) the `diagonal`-th diagonal.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
/// A matrix with a 1-D x on its diagonal, or the diagonal (a view) of a 2-D x.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
/// Matrices over dimensions dim1 and dim2 of the result with the last dimension of x on their diagonals.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// @}

}  // namespace strata
