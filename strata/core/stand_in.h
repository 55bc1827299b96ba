#pragma once
// Tensors for those who want to know a shape and a dtype, and no element.

#include "strata/core/tensor.h"

namespace strata {

/// A row-major tensor of the meta device that takes no memory there either: a dry run, which counts the meta device's
/// blocks, does not count it. Throws ShapeError as empty() does.
Tensor stand_in(const Shape& shape, DType dtype);

}  // namespace strata
