#pragma once
// What the records of the losses share.

#include <string_view>

#include "strata/core/tensor.h"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {

/// Throws ValueError naming `op` unless text is "none", "mean" or "sum".
Reduction parse_reduction(std::string_view text, std::string_view op);

namespace detail {
/// x [N, C, ...] (or [C]) as rows [N * ..., C], to go with target.reshape({target.numel()}). Throws ShapeError.
Tensor class_last(const Tensor& x, const Tensor& target, std::string_view op);
}  // namespace detail

}  // namespace strata
