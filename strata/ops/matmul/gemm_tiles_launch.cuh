#pragma once
// Launches of gemm_tiles_kernel.

#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/matmul/gemm_tiles.cuh"

namespace strata::cuda {

/// Two operands and a result, as they lie, of `batches` products.
struct TileJob {
  tile::Matrices a, b, c;
  int64_t m = 0, n = 0, k = 0, batches = 1;
};

/// Whether tensor maps and 32-bit numbers hold it.
inline bool fits_tiles(const TileJob& j) {
  return tile::fits_copies(j.a) && tile::fits_copies(j.b) && tile::fits_copies(j.c) && j.m > 0 && j.n > 0 && j.k > 0 &&
         ((j.m + 127) / 128) * ((j.n + 127) / 128) * j.batches < (1 << 30);
}

template <class In, class S, class Finish>
void launch_gemm(const TileJob& j, const Finish& finish) {
  const GemmMaps maps{tile::tensor_map(j.a, S::kTurnA ? 64 : S::kRows),
                      tile::tensor_map(j.b, S::kTurnB ? 64 : S::kColumns), tile::tensor_map(j.c, 64)};
  const tile::Bands bands{static_cast<int>((j.m + S::kRows - 1) / S::kRows),
                          static_cast<int>((j.n + S::kColumns - 1) / S::kColumns), static_cast<int>(j.batches), 16};
  tile::launch<gemm_tiles_kernel<In, S, Finish>>(tile::staying_blocks(bands.total()), S::kThreads, S::kSharedBytes,
                                                 maps, bands, static_cast<int>(j.m), static_cast<int>(j.n),
                                                 static_cast<int>(j.k), finish);
}

}  // namespace strata::cuda
