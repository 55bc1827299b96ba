#pragma once
// The way of linear layers under autocast's fp8 policy.

#include "strata/core/arg_type.h"

namespace strata::detail {

/// linear's Fp8Way, for its arguments x, weight and bias.
bool linear_fp8_way(ArgsAt at, const Results& into);
/// Whether a layer of `weight` goes it, given an input that fits.
bool linear_may_be_fp8(const Tensor& weight);

}  // namespace strata::detail
