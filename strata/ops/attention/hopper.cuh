#pragma once
// What the Hopper kernels of attention share: tiles and their instructions (strata/cuda/tile/), and tensor maps of
// operands.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda::hopper {

using namespace cuda::tile;

#ifndef STRATA_TILE_EMULATION
// ---- on the host ----

/// Multiprocessors of the current device.
int multiprocessors();
/// Whether copies can read and write this operand.
bool fits_copies(const AttentionView& v, int64_t batch, int64_t heads, int64_t time);
/// A map of the operand for boxes of 64 columns by `rows` rows.
CUtensorMap tensor_map(DType dtype, const AttentionView& v, int64_t batch, int64_t heads, int64_t time, int64_t size,
                       int rows);

/// Maps of operands that hold several sequences: `of_keys` has a bit for each that lies along the keys.
struct MapSet {
  CUtensorMap maps[7];
  const void* data[7];
  int64_t row_bytes[7];
  int count, of_keys;
  void add(const CUtensorMap& map, const AttentionView& v, bool keys) {
    maps[count] = map, data[count] = v.data, row_bytes[count] = 2 * v.time;
    of_keys |= keys << count, ++count;
  }
};
/// Writes for each part of `s` the maps of its rows alone, so that copies end where the sequence does; returns them,
/// `set.count` after one another for each part. `space` keeps their memory.
const CUtensorMap* maps_of_sequences(const MapSet& set, const Sequences& s, int64_t parts, const Tensor& like_this,
                                     Tensor& space);

/// backward_hopper() of heads above 128.
void backward_wide(const AttentionCall& c, const Tensor& like_this);
#endif

}  // namespace strata::attention_cuda::hopper
