#pragma once
#include "strata/core/tensor.h"

namespace strata {
// On any device.
void constant_pad_into(Tensor& y, const Tensor& x, const Dims& pads, Scalar value);
void flip_into(Tensor& y, const Tensor& x, const Dims& dims);

void tril_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
void triu_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
void tril_cuda(Tensor& y, const Tensor& x, int64_t diagonal);
void triu_cuda(Tensor& y, const Tensor& x, int64_t diagonal);
}  // namespace strata
