#pragma once
// Other forms of the same product: what the engine of every device does before it looks for a kernel.

#include "strata/ops/matmul/gemm.h"

namespace strata {

/// Drops batch dims of size 1 and merges neighbours that all three operands step through evenly; where all share one B,
/// the innermost become rows of A and C.
void merge_batch(Gemm& g);
/// C^T = B^T A^T, so that a column-major C becomes row-major.
void transpose(Gemm& g);

}  // namespace strata
