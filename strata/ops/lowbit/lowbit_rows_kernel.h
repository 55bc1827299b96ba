#pragma once
// Products of a few rows of x with low-bit matrices on a card: what a step of generation is made of.

#include "strata/core/dtype.h"

namespace strata {
namespace lowbit {
struct Product;
}

/// Queues a product as lowbit_tiles_cuda() takes them, and returns true, where x has at most 8 rows that fit beside what
/// is on its way into shared memory, and columns enough for each warp of a block to have some.
bool lowbit_rows_cuda(const lowbit::Product& p, DType t);

}  // namespace strata
