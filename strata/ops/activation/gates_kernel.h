#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// y = x - tanh(x) on a CUDA device; tensors of one floating dtype and shape, computed in f32 (f64 for f64).
void tanhshrink_cuda(Tensor& y, const Tensor& x);
/// y = a sigmoid(b), likewise.
void glu_cuda(Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace strata
