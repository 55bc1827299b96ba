#pragma once
// Rows of a table that a card reads in place over the bus (memory::kUnified), with a cache of some of them in the
// card's own memory.

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata::cuda {

/// Whether x is in memory that the card reaches over the bus, and its slices along dimension 0 are dense, so that
/// take_far_rows() reads them where they are.
bool has_far_rows(const Tensor& x);

/// y [n, ...] = the slices of x along dimension 0 that index (i64, dense, n elements) names, of a table with far rows.
/// With from_end negative ones count from the end. Of an index outside x the host hears later (range.cuh); it reads
/// zeros. Every 16 bytes that a row touches are read once for each time that it is named, in requests of whole lines.
void take_far_rows(Tensor& y, const Tensor& x, const Tensor& index, bool from_end = false);

/// The same of a table wherever it lives, but row i comes from row slots[i] of `cache` where slots[i] (i32, one for
/// each row of x) is not negative. `cache` is dense, its rows like x's. Adds to *hits (i64, on the device) how many
/// came from there.
void take_rows_through_cache(Tensor& y, const Tensor& x, const Tensor& index, const Tensor& cache, const Tensor& slots,
                             int64_t* hits);

/// The slices of x along dimension 0 that index (i64, dense) names = those of `from`, on the current stream; no two
/// name the same. kNoRow (rows.h) names none; of another index outside x the host hears.
void put_far_rows(const Tensor& x, const Tensor& index, const Tensor& from);

}  // namespace strata::cuda
