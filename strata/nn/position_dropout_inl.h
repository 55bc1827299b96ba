#pragma once

#include "strata/core/tensor.h"

namespace strata::nn::detail {

// dropout() in training. Where processes share sequences (PositionShareScope) each element of x [B, T, ..], T this
// process's positions, has the number that it has in a dropout of the whole [B, length, ..], to the last number where
// the elements of a position are a multiple of four; what has no such positions has a stretch of its own for each
// process.
Tensor dropped(const Tensor& x, double p);

}  // namespace strata::nn::detail
