#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// y = the polynomials of f32 x and i64 orders n of that family (polynomials_inl.h's number), and true, where all three
/// are contiguous, of one shape and aligned to 16 bytes; else false.
bool polynomials_cuda(const Tensor& y, const Tensor& x, const Tensor& n, int family);

}  // namespace strata
