#pragma once
// What the records of this family share.

#include <string_view>

#include "strata/core/op.h"

namespace strata::products {

/// Throws DTypeError, naming both, unless a and b have one dtype that is not bool.
void check_dtypes(std::string_view op, const Tensor& a, const Tensor& b);
/// Throws ShapeError unless `t`, the op's argument `name`, has `rank` dimensions.
void check_rank(std::string_view op, const Tensor& t, std::string_view name, int64_t rank);
/// Throws DTypeError for a floating factor of integers, which could only be rounded.
void check_factors(std::string_view op, const Tensor& a, Scalar beta, Scalar alpha);
/// matmul by dense copies and three loops, in f64.
Tensor matmul_reference(const Tensor& a, const Tensor& b);
/// beta * input + alpha * product for f64 tensors, element by element; input is not read where beta is 0.
Tensor combined_reference(const Tensor& input, const Tensor& product, Scalar beta, Scalar alpha);
/// t * by; t itself where that is 1.
Tensor scaled(const Tensor& t, Scalar by);
Cost matmul_cost(const Tensor& a, const Tensor& b);

}  // namespace strata::products
