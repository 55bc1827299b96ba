#pragma once
// Places in a flattened tensor.

#include "strata/core/tensor.h"

namespace strata {

/// Places in a flattened tensor as places in one of `shape`: an index tensor for each dimension. Throws DTypeError,
/// ValueError.
TensorList unravel_index(const Tensor& indices, const Dims& shape);

}  // namespace strata
