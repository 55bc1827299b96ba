#pragma once
#include "strata/core/tensor.h"

namespace strata {
/// frexp's two results in one launch. False, with nothing queued, where they have gaps or begin at odd addresses.
bool frexp_at_once_cuda(Tensor& mantissa, Tensor& exponent, const Tensor& x);
}  // namespace strata
