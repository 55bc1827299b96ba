#pragma once
// Products of one row with a matrix whose rows lie along the sum: what a step of generation is made of.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues the product, with a bias and any alpha and beta, and returns true, where A is one row of bf16 or f16, and
/// B's columns are dense and aligned. All of its time is that of reading B. Sums depend on k alone.
bool gemm_few(const Gemm& g, Device device);

/// A linear layer of one row with what stands before or behind it in a decoder's step. All of one dtype, of 16 bits.
struct RowLayer {
  DType dtype = DType::bf16;
  const void *x = nullptr, *weight = nullptr;  ///< [k], [n, k] with rows `row` elements apart
  const void* bias = nullptr;                  ///< [n] or null
  void* y = nullptr;                           ///< [n]
  int64_t n = 0, k = 0, row = 0;
  const void *residual = nullptr, *norm = nullptr;  ///< [k] or null: x is rms_norm(x + residual) * norm
  void* sum = nullptr;                              ///< [k] with `norm`: x + residual
  double eps = 0;
  bool gate = false;  ///< weight is [2 n, k], the gate's rows first, and y = silu(a) * b; without bias
};
/// Queues it as one kernel and returns true on Hopper cards, where rows are whole, aligned pieces of 16 bytes, k is at
/// most 8192 and n is enough to fill a card. Sums depend on k alone; a gate has the bits of the two kernels apart.
bool row_layer(const RowLayer& c, Device device);

}  // namespace strata::cuda
