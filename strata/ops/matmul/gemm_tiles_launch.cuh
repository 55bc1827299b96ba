#pragma once
// Launches of gemm_tiles_kernel.

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
void launch_gemm(const TileJob& j, const Finish& finish, int multiprocessors) {
  const auto kernel = gemm_tiles_kernel<In, S, Finish>;
  thread_local int prepared = -1;  // the device whose limit on shared memory was raised last
  int device = 0;
  check_cuda(cudaGetDevice(&device), "gemm_tiles", "cudaGetDevice");
  if (prepared != device) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes), "gemm_tiles",
               "cudaFuncSetAttribute");
    prepared = device;
  }
  const GemmMaps maps{tile::tensor_map(j.a, S::kTurnA ? 64 : S::kRows),
                      tile::tensor_map(j.b, S::kTurnB ? 64 : S::kColumns), tile::tensor_map(j.c, 64)};
  tile::Bands bands;
  bands.rows = static_cast<int>((j.m + S::kRows - 1) / S::kRows);
  bands.columns = static_cast<int>((j.n + S::kColumns - 1) / S::kColumns);
  bands.matrices = static_cast<int>(j.batches);
  bands.band = 16;
  const int blocks = bands.total() < multiprocessors ? bands.total() : multiprocessors;
  kernel<<<static_cast<unsigned>(blocks), S::kThreads, S::kSharedBytes, stream()>>>(
      maps, bands, static_cast<int>(j.m), static_cast<int>(j.n), static_cast<int>(j.k), finish);
}

}  // namespace strata::cuda
