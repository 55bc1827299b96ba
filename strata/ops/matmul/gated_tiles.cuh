#pragma once
// silu(x gate^T) * (x up^T) from tiles: a block multiplies its rows of x by 128 rows of each of the two weights, which
// lie one after the other in shared memory, so that one product has both, and their sums meet in registers.

#include "strata/cuda/tile/pipeline.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/cuda/tile/rows.cuh"
#include "strata/cuda/tile/schedule.cuh"
#include "strata/cuda/tile/tensor_map.cuh"

namespace strata::cuda {

struct GatedMaps {
  CUtensorMap x, weight, y;  // [m][k], [2 h][k], [m][h]
};
struct GatedShape {
  static constexpr int kGroups = 2, kRows = 64 * kGroups, kColumns = 128, kStages = 4, kThreads = 128 * (kGroups + 1);
  static constexpr int kBoxBytes = 64 * tile::kRowBytes, kXBytes = kRows * tile::kRowBytes,
                       kWeightBytes = kColumns * tile::kRowBytes;
  using Stages = tile::Pipeline<kStages, kXBytes + 2 * kWeightBytes>;
  static constexpr int kSharedBytes = 2 * kGroups * kBoxBytes + Stages::kSharedBytes;
};

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gated_tiles_kernel(const __grid_constant__ GatedMaps maps, const tile::Bands bands, int m, int h, int k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace tile;
  uint8_t* const results = shared_memory();
  typename S::Stages stages(results + 2 * S::kGroups * S::kBoxBytes);
  const int group = static_cast<int>(threadIdx.x) / 128, steps = (k + 63) / 64;
  if (threadIdx.x == 0) stages.init(4 * S::kGroups);
  __syncthreads();

  if (group == S::kGroups) {  // copies
    give_registers<24>();
    if (threadIdx.x % 128 != 0) return;
    for (Turns turn(bands.total()); turn.more(); turn.next()) {
      int row, column, only;
      bands.locate(turn.at, row, column, only);
      for (int i = 0; i < steps; ++i)
        stages.fill([&](uint8_t* to, uint64_t* full) {
          copy_in(to, maps.x, full, 64 * i, row * S::kRows, 0);
          copy_in(to + S::kXBytes, maps.weight, full, 64 * i, column * S::kColumns, 0);
          copy_in(to + S::kXBytes + S::kWeightBytes, maps.weight, full, 64 * i, h + column * S::kColumns, 0);
        });
    }
    return;
  }

  take_registers<240>();
  const bool leads_warp = threadIdx.x % 32 == 0, leads = threadIdx.x % 128 == 0;
  uint8_t* const boxes = results + 2 * group * S::kBoxBytes;
  for (Turns turn(bands.total()); turn.more(); turn.next()) {
    int row, column, only;
    bands.locate(turn.at, row, column, only);
    float sums[2 * S::kColumns / 2];  // the gate's, then the other's
    for (int i = 0; i < steps; ++i) {
      const uint8_t* const x = stages.take();
      const uint64_t a = descriptor_k(x + group * S::kBoxBytes), b = descriptor_k(x + S::kXBytes);
      fence_products();
#pragma unroll
      for (int s = 0; s < kRowBytes / kProductBytes; ++s)
        multiply<T, false, false>(sums, advanced(a, s * kProductBytes), advanced(b, s * kProductBytes), i + s > 0);
      commit_products();
      wait_products<1>();
      if (i > 0) stages.release(leads_warp);
    }
    wait_products<0>();
    pin(sums);
    stages.release(leads_warp);

    float y[S::kColumns / 2];
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i)
      y[i] = __fdividef(sums[i], 1 + __expf(-sums[i])) * sums[S::kColumns / 2 + i];
    if (leads) wait_out_read();
    named_sync(1 + group, 128);
    store_box<T>(boxes, y, 0);
    store_box<T>(boxes + S::kBoxBytes, y, 64);
    fence_shared();
    named_sync(1 + group, 128);
    const int row0 = row * S::kRows + 64 * group, column0 = column * S::kColumns;
    if (leads && row0 < m) {
      copy_out(maps.y, boxes, column0, row0, 0);
      if (column0 + 64 < h) copy_out(maps.y, boxes + S::kBoxBytes, column0 + 64, row0, 0);
    }
    if (leads) commit_out();
  }
  if (leads) wait_out_read();
#endif
}

}  // namespace strata::cuda
