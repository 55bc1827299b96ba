#pragma once
// New tensors from nothing. They are made on default_device(), with default_dtype() unless a dtype is given.

#include <optional>

#include "strata/core/tensor.h"
#include "strata/ops/factory/ranges.h"

namespace strata {

/// Every element `value`. Without a dtype: the scalar's kind (bool, i64), or default_dtype() for floating scalars.
Tensor full(const Shape& shape, Scalar value, std::optional<DType> dtype = {});
Tensor zeros(const Shape& shape, std::optional<DType> dtype = {});
Tensor ones(const Shape& shape, std::optional<DType> dtype = {});
/// Uninitialised.
Tensor empty(const Shape& shape, std::optional<DType> dtype = {});
/// Like x in shape, device and (unless given) dtype.
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype = {});
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = {});

}  // namespace strata
