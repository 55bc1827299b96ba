#pragma once
#include "strata/core/tensor.h"

namespace strata {
// On any device.
void constant_pad_into(Tensor& y, const Tensor& x, const Dims& pads, Scalar value);
void flip_into(Tensor& y, const Tensor& x, const Dims& dims);

void tril_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
void triu_cpu(Tensor& y, const Tensor& x, int64_t diagonal);
/// y[i] = x[i - by] in each dimension, `by` in [0, size), in one launch. False, with nothing queued, where there are
/// too many elements or dimensions for it.
bool roll_at_once_cuda(const Tensor& y, const Tensor& x, const Dims& by);
void tril_cuda(Tensor& y, const Tensor& x, int64_t diagonal);
void triu_cuda(Tensor& y, const Tensor& x, int64_t diagonal);
}  // namespace strata
