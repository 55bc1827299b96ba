#pragma once

#include "strata/core/position_share_inl.h"
#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata::nn::detail {

// The numbers of one dropout in training, of which pieces may be computed apart, and again. Where processes share
// sequences (PositionShareScope) each element of x [B, T, ..], T this process's positions, has the number that it has
// in a dropout of the whole [B, length, ..], to the last number where what begins a piece or a chunk of positions is a
// multiple of four; what has no such positions has a stretch of its own for each process.
class DropNumbers {
 public:
  // Draws those of an x of this shape.
  explicit DropNumbers(const Shape& x);
  // dropout() of x's elements from `first` on, in row-major order.
  Tensor drop(const Tensor& piece, double p, int64_t first = 0) const;

 private:
  RngKey key_;
  Dims numbers_;  // as dropout() takes them
};

// dropout() of x in training by its own numbers.
Tensor dropped(const Tensor& x, double p);

}  // namespace strata::nn::detail
