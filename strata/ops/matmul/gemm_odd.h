#pragma once
// Products of bf16 and f16 whose sizes are not multiples of 8: cuBLASLt multiplies large ones at a seventh of its
// speed, and rounds before it adds a bias.

#include <optional>

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// How a [rows, cols] matrix lies: its leading dimension as rows one after the other, or as columns.
struct Lie {
  bool by_rows = true;
  int64_t ld = 0;
};
/// Nothing where neither has stride 1.
std::optional<Lie> lie(int64_t rows, int64_t cols, int64_t row, int64_t col);

/// Queues the product in parts, a large one so: all but the last m % 8 rows, n % 8 columns and k % 8 summands go
/// through gemm(), from copies with padded rows where rows are not aligned to 16 bytes, and the rest through kernels of
/// ours. g has no batch, and c_col is 1. False, with nothing queued, where gemm() as it is will do.
bool gemm_odd(const Gemm& g, Device device);

}  // namespace strata::cuda
