#pragma once
// Lookup in a table of which some rows have a copy nearer by.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Rows of `table` [V, D] at `indices` (i64, of any shape): indices.shape() + [D]; where slots[i] (i32 [V]) is not
/// negative, row i is read from row slots[i] of `cache` [S, D] instead. And how many were, i64 []. On a CUDA device the
/// table may be in memory that the card reaches over the bus. Not differentiable. Throws IndexError, ShapeError,
/// DTypeError.
std::tuple<Tensor, Tensor> embedding_cached(const Tensor& indices, const Tensor& table, const Tensor& cache,
                                            const Tensor& slots);

void embedding_cached_cuda(Tensor& y, Tensor& hits, const Tensor& indices, const Tensor& table, const Tensor& cache,
                           const Tensor& slots);

}  // namespace strata
