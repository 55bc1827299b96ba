#pragma once
// Joining tensors, and splitting them again.

#include "strata/core/tensor.h"

namespace strata {

/// The tensors one after the other along `dim`, in their common dtype. All other sizes must agree; tensors of shape [0]
/// are skipped. Throws ShapeError.
Tensor cat(const TensorList& tensors, int64_t dim = 0);
/// Tensors of one shape as the slices of a new dimension `dim`. Throws ShapeError.
Tensor stack(const TensorList& tensors, int64_t dim = 0);
/// Views of `size` elements along `dim`, the last one possibly shorter. Throws ValueError unless size >= 1.
TensorList split(const Tensor& x, int64_t size, int64_t dim = 0);
/// Views of the given sizes along `dim`, at most 8. Throws ShapeError unless they add up to its size.
TensorList split_with_sizes(const Tensor& x, const Dims& sizes, int64_t dim = 0);
/// At most `chunks` views of equal size along `dim`, the last one possibly shorter.
TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Views of the slices along `dim`, which disappears.
TensorList unbind(const Tensor& x, int64_t dim = 0);

}  // namespace strata
