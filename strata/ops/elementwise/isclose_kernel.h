#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// y = |a - b| <= atol + rtol * |b| or a == b in f64, for whole numbers or bool of one dtype on the CPU. False, and
/// nothing done, where the three do not lie alike and densely.
bool isclose_ints_cpu(Tensor& y, const Tensor& a, const Tensor& b, double rtol, double atol);

}  // namespace strata
