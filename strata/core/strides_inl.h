#pragma once

#include "strata/core/tensor.h"

namespace strata::detail {

/// Whether elements lie in row-major order without gaps. Strides of dimensions of one element tell nothing.
bool strides_are_contiguous(const Shape& shape, const Strides& strides);

}  // namespace strata::detail
