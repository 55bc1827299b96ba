#pragma once
// Pooling of integers: of ops that take them, since the kernels compute in floating point.

#include <optional>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::pool {

/// max_pool's values and avg_pool for integer x; lists have an entry for each spatial dimension. Means are rounded
/// towards 0. Throws DTypeError for bool, and as the floating ones do.
Tensor max_pool_integers(std::string_view op, const Tensor& x, const Dims& kernel, const Dims& stride,
                         const Dims& padding, const Dims& dilation, bool ceil_mode);
Tensor avg_pool_integers(std::string_view op, const Tensor& x, const Dims& kernel, const Dims& stride,
                         const Dims& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor);

}  // namespace strata::pool
