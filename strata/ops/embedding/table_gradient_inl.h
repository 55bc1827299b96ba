#pragma once
// The gradient of embedding for its table, as a call.

#include <cstdint>
#include <optional>

#include "strata/core/tensor.h"

namespace strata::detail {

/// [rows, D]: row v is the sum of the rows of gy at the positions that hold index v, as embedding's backward gives it;
/// row `padding` is 0. Throws as embedding.
Tensor table_gradient(const Tensor& gy, const Tensor& indices, int64_t rows, std::optional<int64_t> padding = {});

}  // namespace strata::detail
