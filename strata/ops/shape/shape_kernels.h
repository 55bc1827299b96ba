#pragma once
#include "strata/core/tensor.h"

namespace strata {
void constant_pad_cpu(Tensor& y, const Tensor& x, const Dims& pads, Scalar value);
void flip_cpu(Tensor& y, const Tensor& x, const Dims& dims);
void tril_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
void triu_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
}  // namespace strata
