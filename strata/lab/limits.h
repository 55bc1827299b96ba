#pragma once
// The least time that a machine allows an op.

#include "strata/core/op_base.h"

namespace strata::lab {

/// What the machine, or the card, was measured to do at most. 0 where it is not known: fractions are then not given.
struct Limits {
  double gb_s = 0;        ///< memory, 1e9 bytes/s
  double gflops = 0;      ///< f32 multiply-adds
  double matmul_f32 = 0;  ///< GFLOP/s of a matrix product
  double matmul_bf16 = 0;
};

/// The least time that the limits allow a call of `op` that costs so much, its arguments being of `dtype`: the larger
/// of operations over the peak for their kind and bytes over the bandwidth. 0 where the limits are not known.
double least_seconds(const OpBase& op, DType dtype, Cost cost, const Limits& limits);

}  // namespace strata::lab
