#pragma once
// copy_elements() and fill_elements() where a CUDA device takes part.

#include "strata/core/tensor.h"

namespace strata {

void copy_elements_cuda(const Tensor& dst, const Tensor& src);
void fill_elements_cuda(const Tensor& dst, Scalar value);

}  // namespace strata
