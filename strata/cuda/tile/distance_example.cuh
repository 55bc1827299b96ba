#pragma once
// The smallest kernel of tiles, an example (docs/design/cuda-tiles.md): squared Euclidean distances between rows.

#include "strata/cuda/tile/pipeline.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/cuda/tile/rows.cuh"
#include "strata/cuda/tile/schedule.cuh"

namespace strata::cuda::tile {

/// Two warpgroups of 64 rows each and one that copies.
struct DistanceShape {
  static constexpr int kGroups = 2, kRows = 64 * kGroups, kColumns = 128, kDepth = 64, kStages = 4;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kStageBytes = (kRows + kColumns) * kRowBytes;
  static constexpr int kBoxBytes = 64 * kRowBytes, kBoxColumns = kRowBytes / 4, kBoxes = kColumns / kBoxColumns;
  static constexpr int kOutBytes = kGroups * kBoxes * kBoxBytes;
  static constexpr int kSharedBytes = kOutBytes + Pipeline<kStages, kStageBytes>::kSharedBytes;
};

/// d[i][j] = |a[i]|^2 + |b[j]|^2 - 2 a[i] . b[j] in f32: a [M][K] in boxes of kRows rows, b [N][K] of kColumns, d
/// [M][N] of 64; `rows` holds the M squares |a[i]|^2, `columns` the N of b. `steps` of kDepth cover K.
template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    distances(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
              const __grid_constant__ CUtensorMap d, const float* rows, const float* columns, int m, int n, Bands bands,
              int steps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  uint8_t* const memory = shared_memory();
  Pipeline<S::kStages, S::kStageBytes> stages(memory + S::kOutBytes);
  if (threadIdx.x == 0) stages.init(4 * S::kGroups);  // each warp releases
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;  // -1 copies
  const bool first = threadIdx.x % 128 == 0, releases = threadIdx.x % 32 == 0;
  if (group < 0) {
    give_registers<24>();
    if (!first) return;
    for (Turns turn(bands.total()); turn.more(); turn.next()) {
      int row, column, matrix;
      bands.locate(turn.at, row, column, matrix);
      for (int step = 0; step < steps; ++step)
        stages.fill([&](uint8_t* to, uint64_t* full) {
          copy_in(to, a, full, step * S::kDepth, row * S::kRows, 0);
          copy_in(to + S::kRows * kRowBytes, b, full, step * S::kDepth, column * S::kColumns, 0);
        });
    }
    return;
  }
  take_registers<240>();
  uint8_t* const out = memory + group * S::kBoxes * S::kBoxBytes;
  for (Turns turn(bands.total()); turn.more(); turn.next()) {
    int row, column, matrix;
    bands.locate(turn.at, row, column, matrix);
    row = row * S::kRows + group * 64, column *= S::kColumns;
    float sums[S::kColumns / 2];
    for (int step = 0; step < steps; ++step) {
      const uint8_t* const stage = stages.take();
      const uint64_t at_a = descriptor_k(stage + group * 64 * kRowBytes);
      const uint64_t at_b = descriptor_k(stage + S::kRows * kRowBytes);
      fence_products();
#pragma unroll
      for (int k = 0; k < kRowBytes; k += kProductBytes)
        multiply<T, false, false>(sums, advanced(at_a, k), advanced(at_b, k), step > 0 || k > 0);
      commit_products();
      wait_products<1>();
      if (step > 0) stages.release(releases);
    }
    wait_products<0>();
    pin(sums);
    stages.release(releases);
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i) {
      const int r = row + row_of(i), c = column + column_of(i);
      sums[i] = (r < m ? rows[r] : 0) + (c < n ? columns[c] : 0) - 2 * sums[i];
    }
    if (first) wait_out_read();
    named_sync(1 + group, 128);
#pragma unroll
    for (int i = 0; i < S::kBoxes; ++i) store_box<float>(out + i * S::kBoxBytes, sums, i * S::kBoxColumns);
    fence_shared();
    named_sync(1 + group, 128);
    if (first) {
      for (int i = 0; i < S::kBoxes; ++i)
        if (row < m && column + i * S::kBoxColumns < n)
          copy_out(d, out + i * S::kBoxBytes, column + i * S::kBoxColumns, row, 0);
      commit_out();
    }
  }
  if (first) wait_out_read();
#endif
}

}  // namespace strata::cuda::tile
