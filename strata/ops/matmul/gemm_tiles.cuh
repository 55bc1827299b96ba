#pragma once
// A matrix product from tiles, C = finish(A B), for one block a multiprocessor that stays: one warpgroup starts the
// copies, two multiply 64 rows each by all columns of the block's tile; a tile's result leaves while the copies of the
// next one run. The same source runs on a card and, in tests, on the processor.

#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/pipeline.cuh"
#include "strata/cuda/tile/product.cuh"
#include "strata/cuda/tile/schedule.cuh"
#include "strata/cuda/tile/tensor_map.cuh"

namespace strata::cuda {

/// What a product of In into Out is made of. A lies [m][k], or [k][m] where it is turned; B [n][k], or [k][n] turned.
template <class In, class Out_, int kColumns_, bool kTurnA_, bool kTurnB_>
struct GemmShape {
  using Out = Out_;
  static constexpr int kGroups = 2, kRows = 64 * kGroups, kColumns = kColumns_, kThreads = 128 * (kGroups + 1);
  static constexpr bool kTurnA = kTurnA_, kTurnB = kTurnB_;
  static constexpr int kDepth = tile::kRowBytes / (tile::kEightBits<In> ? 1 : 2);      // of a stage
  static constexpr int kOutColumns = tile::kRowBytes / static_cast<int>(sizeof(Out));  // of a box of the result
  static constexpr int kABytes = kRows * tile::kRowBytes, kBBytes = kColumns * tile::kRowBytes;
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kBoxBytes = 64 * tile::kRowBytes;  // two for each group's results on their way out
  static_assert(kColumns / kOutColumns % 2 == 0);         // boxes take turns
  using Stages = tile::Pipeline<kStages, kABytes + kBBytes>;
  static constexpr int kSharedBytes = 2 * kGroups * kBoxBytes + Stages::kSharedBytes;
};

struct GemmMaps {
  CUtensorMap a, b, c;
};

/// Starts copies of kOuter rows (columns) of an operand from `outer` on, and of one stage of its depth from `depth` on.
template <bool kTurned, int kOuter>
__device__ __forceinline__ void copy_operand(uint8_t* to, const CUtensorMap& map, uint64_t* full, int outer, int depth,
                                             int batch) {
  if constexpr (kTurned) {
#pragma unroll
    for (int i = 0; i < kOuter / 64; ++i)
      tile::copy_in(to + i * 64 * tile::kRowBytes, map, full, outer + 64 * i, depth, batch);
  } else {
    tile::copy_in(to, map, full, depth, outer, batch);
  }
}
/// The operand's descriptor, from its 64-row group `group` on, `step` products deep.
template <bool kTurned>
__device__ __forceinline__ uint64_t operand(const uint8_t* at, int group, int step) {
  at += group * 64 * tile::kRowBytes;
  return kTurned ? tile::advanced(tile::descriptor_t(at, 64 * tile::kRowBytes), step * 16 * tile::kRowBytes)
                 : tile::advanced(tile::descriptor_k(at), step * tile::kProductBytes);
}

/// sums (+)= what a stage has of a product: 64 rows of A, the warpgroup's, and all columns of B. Runs on.
template <class In, class S, int R>
__device__ __forceinline__ void multiply_stage(tile::sum_t<In> (&sums)[R], const uint8_t* stage, int group,
                                               bool first) {
  tile::fence_products();
#pragma unroll
  for (int s = 0; s < tile::kRowBytes / tile::kProductBytes; ++s)
    tile::multiply<In, S::kTurnA, S::kTurnB>(sums, operand<S::kTurnA>(stage, group, s),
                                             operand<S::kTurnB>(stage + S::kABytes, 0, s), !first || s > 0);
  tile::commit_products();
}
/// A warpgroup's results on their way out, a box after the other in turns of two: finish(sum, column) rounds each,
/// leave(box, column) sends a box from its column on, by all threads, and the first one's copies are committed.
template <class S, class Sum, int R, class Finish, class Leave>
__device__ __forceinline__ void leave_tile(uint8_t* boxes, const Sum (&sums)[R], int group, const Finish& finish,
                                           const Leave& leave) {
  using Out = typename S::Out;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
#pragma unroll
  for (int c = 0; c < S::kColumns / S::kOutColumns; ++c) {
    uint8_t* const box = boxes + c % 2 * S::kBoxBytes;
    if (thread == 0) tile::wait_out_read<1>();  // the box before the last one
    tile::named_sync(1 + group, 128);
#pragma unroll
    for (int j = 0; j < S::kOutColumns / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = (c * S::kOutColumns / 8 + j) * 4 + 2 * r, in_box = 8 * j + lane % 4 * 2;
        const int from = c * S::kOutColumns + in_box;
        tile::store_pair<Out>(box + tile::swizzled_element<Out>(thread / 32 * 16 + lane / 4 + 8 * r, in_box),
                              finish(sums[at], from), finish(sums[at + 1], from + 1));
      }
    tile::fence_shared();
    tile::named_sync(1 + group, 128);
    leave(box, c * S::kOutColumns);
    if (thread == 0) tile::commit_out();
  }
}

template <class In, class S, class Finish>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_tiles_kernel(const __grid_constant__ GemmMaps maps, const tile::Bands bands, int m, int n, int k,
                      const Finish finish) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace tile;
  uint8_t* const results = shared_memory();
  typename S::Stages stages(results + 2 * S::kGroups * S::kBoxBytes);
  const int group = static_cast<int>(threadIdx.x) / 128, steps = (k + S::kDepth - 1) / S::kDepth;
  if (threadIdx.x == 0) stages.init(4 * S::kGroups);  // a warp each
  __syncthreads();

  if (group == S::kGroups) {  // copies
    give_registers<24>();
    if (threadIdx.x % 128 != 0) return;
    for (Turns turn(bands.total()); turn.more(); turn.next()) {
      int row, column, batch;
      bands.locate(turn.at, row, column, batch);
      for (int i = 0; i < steps; ++i)
        stages.fill([&](uint8_t* to, uint64_t* full) {
          copy_operand<S::kTurnA, S::kRows>(to, maps.a, full, row * S::kRows, i * S::kDepth, batch);
          copy_operand<S::kTurnB, S::kColumns>(to + S::kABytes, maps.b, full, column * S::kColumns, i * S::kDepth,
                                               batch);
        });
    }
    return;
  }

  take_registers<240>();
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  uint8_t* const boxes = results + 2 * group * S::kBoxBytes;
  for (Turns turn(bands.total()); turn.more(); turn.next()) {
    int row, column, batch;
    bands.locate(turn.at, row, column, batch);
    sum_t<In> sums[S::kColumns / 2];
    for (int i = 0; i < steps; ++i) {
      multiply_stage<In, S>(sums, stages.take(), group, i == 0);
      wait_products<1>();  // those of the stage before
      if (i > 0) stages.release(lane == 0);
    }
    wait_products<0>();
    pin(sums);
    stages.release(lane == 0);

    const int row0 = row * S::kRows + 64 * group, column0 = column * S::kColumns;
    leave_tile<S>(
        boxes, sums, group, [&](sum_t<In> v, int at) { return finish(v, column0 + at, n); },
        [&](const uint8_t* box, int at) {
          if (thread == 0 && row0 < m && column0 + at < n) copy_out(maps.c, box, column0 + at, row0, batch);
        });
  }
  if (thread == 0) wait_out_read();
#endif
}

// ---- what becomes of a sum ----

/// scale * v + bias[column], rounded once.
template <class Out>
struct Scaled {
  float alpha = 1;
  const float *scale_a = nullptr, *scale_b = nullptr;
  const Out* bias = nullptr;
  __device__ __forceinline__ Out operator()(float v, int column, int n) const {
    v *= alpha;
    if (scale_a != nullptr) v *= *scale_a * *scale_b;
    if (bias != nullptr && column < n) v += widen(bias[column]);
    return narrow<Out>(v);
  }
};
/// The integer itself, or its low bits.
template <class Out>
struct Whole {
  __device__ __forceinline__ Out operator()(int32_t v, int, int) const { return static_cast<Out>(v); }
};

}  // namespace strata::cuda
