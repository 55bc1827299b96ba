#pragma once
// A residual connection, the norm behind it and the linear layer behind that as one op: a decoder's step at one text.

#include <utility>

#include "strata/core/tensor.h"

namespace strata {

/// linear(y, weight, bias) and sum of (y, sum) = add_rms_norm(x, residual, norm_weight, eps): x and residual [.., in],
/// norm_weight [in], weight [out, in], bias [out] or undefined -> [.., out] and [.., in]. With `gated`, without a bias,
/// the first is swiglu of that, [.., out / 2]. On Hopper cards one kernel for one row of 16 bits, so that the weight is
/// on its way while the row is made. Throws ShapeError, DTypeError, ValueError.
///   auto [gate_up, stream] = add_rms_norm_linear(branch, stream, norm.weight, gate_up.weight, {}, 1e-5, true);
std::pair<Tensor, Tensor> add_rms_norm_linear(const Tensor& x, const Tensor& residual, const Tensor& norm_weight,
                                              const Tensor& weight, const Tensor& bias, double eps, bool gated = false);

}  // namespace strata
