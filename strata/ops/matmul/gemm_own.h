#pragma once
// What cuBLASLt leaves to us.

#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Any product, for every dtype and any strides, with plain 16 by 16 tiles.
void gemm_own(const Gemm& g);
/// C = epilogue(C + bias) for a finished product.
void finish_own(const Gemm& g);
/// Dense row-major [batches, rows, cols] from strided matrices.
void copy_matrices(DType t, const void* from, int64_t batch, int64_t row, int64_t col, void* to, int64_t batches,
                   int64_t rows, int64_t cols);

/// to[i, j] = from[i, j] for matrices whose rows lie `from_row` and `to_row` elements apart.
void copy_rows(DType t, const void* from, int64_t from_row, void* to, int64_t to_row, int64_t rows, int64_t cols);

}  // namespace strata::cuda
