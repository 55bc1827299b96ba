#pragma once
// Products of few tiles and long sums, shared by the blocks of clusters.

#include "strata/core/dtype.h"

namespace strata::cuda {

struct TileJob;

/// How a product of 16 bits with a sum's scale and bias lies.
struct SplitGemm {
  DType in, out;
  bool turn_a, turn_b;
  float alpha;
  const void* bias;  ///< [n] of `out`, or null
};
/// Queues it on the current stream where sharing the sums out pays: where tiles leave half of the multiprocessors
/// without work. False, with nothing queued, elsewhere.
bool gemm_split(const SplitGemm& g, const TileJob& j);

}  // namespace strata::cuda
