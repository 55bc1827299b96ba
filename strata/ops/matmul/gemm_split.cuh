#pragma once
// A matrix product of few tiles and a long sum: kSplit blocks of a cluster take a part of a tile's sum each, and in the
// end send each other their parts of the rows and columns that the other one finishes; always added in the sum's order.
// kShare blocks whose tiles lie one below the other bring the columns' operand together, once. A block has one tile.
// The engine does not launch it: docs/design/cuda-tiles.md has what it took.

#include "strata/ops/matmul/gemm_tiles.cuh"

namespace strata::cuda {

template <class In, class Out_, int kShare_, int kSplit_, bool kTurnA_, bool kTurnB_>
struct SplitShape {
  using Out = Out_;
  static constexpr int kShare = kShare_, kSplit = kSplit_;
  static constexpr int kGroups = 2, kRows = 64 * kGroups, kColumns = 128, kThreads = 128 * (kGroups + 1);
  static constexpr bool kTurnA = kTurnA_, kTurnB = kTurnB_;
  static constexpr int kDepth = tile::kRowBytes / 2;
  static constexpr int kOutColumns = tile::kRowBytes / static_cast<int>(sizeof(Out));
  static constexpr int kABytes = kRows * tile::kRowBytes, kBBytes = kColumns * tile::kRowBytes;
  static constexpr int kBColumns = kColumns / kShare;  // of b, that a block brings
  using Stages = tile::Pipeline<5, kABytes + kBBytes>;

  // A tile is finished in quarters of 64 rows, a warpgroup's, and 64 columns, each by one block.
  static constexpr int kOwned = 4 / kSplit, kQuarter = 64, kSums = kQuarter / 2;  // numbers of a thread
  __device__ static constexpr int owner(int group, int half) { return kSplit == 2 ? half : 2 * group + half; }
  static constexpr int kBoxBytes = 64 * tile::kRowBytes, kBoxes = kQuarter / kOutColumns;
  static constexpr int kSentBytes = 128 * kSums * 4;  // a quarter's sums from one other block
  static constexpr int kResultBytes = kOwned * kBoxes * kBoxBytes, kPeerBytes = kOwned * (kSplit - 1) * kSentBytes;
  // Barriers of the quarters' sums, one for each group, are last.
  static constexpr int kSharedBytes = kResultBytes + kPeerBytes + Stages::kSharedBytes + 8 * kGroups;
  static_assert((kSplit == 2 || kSplit == 4) && (kShare == 1 || kShare == 2));
};

/// `bands` has rows of kShare tiles; a sum has at least kSplit steps.
template <class In, class S, class Finish>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_split_kernel(const __grid_constant__ GemmMaps maps, const tile::Bands bands, int m, int n, int k,
                      const Finish finish) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace tile;
  using Out = typename S::Out;
  const ClusterTiles<S::kShare, S::kSplit> cluster;
  uint8_t* const results = shared_memory();
  uint8_t* const sent = results + S::kResultBytes;
  typename S::Stages stages(sent + S::kPeerBytes);
  auto* const arrived = reinterpret_cast<uint64_t*>(sent + S::kPeerBytes + S::Stages::kSharedBytes);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const Span steps((k + S::kDepth - 1) / S::kDepth, S::kSplit, cluster.part());
  int row, column, batch;
  bands.locate(cluster.cluster, row, column, batch);
  row = row * S::kShare + cluster.tile();
  if (threadIdx.x == 0) {
    stages.init(4 * S::kGroups * S::kShare);                                              // a warp each
    for (int i = 0; i < S::kGroups; ++i) init_barrier(arrived + i, 4 * (S::kSplit - 1));  // of each other block
    fence_barriers();
  }
  cluster_sync();

  if (group == S::kGroups) {  // copies
    give_registers<24>();
    if (threadIdx.x % 128 != 0) return;
    const int outer = column * S::kColumns + cluster.tile() * S::kBColumns;
    for (int i = steps.begin; i < steps.end; ++i)
      stages.fill([&](uint8_t* to, uint64_t* full) {
        copy_operand<S::kTurnA, S::kRows>(to, maps.a, full, row * S::kRows, i * S::kDepth, batch);
        uint8_t* const b = to + S::kABytes + cluster.tile() * S::kBColumns * kRowBytes;
        if constexpr (S::kShare == 1) {
          copy_operand<S::kTurnB, S::kBColumns>(b, maps.b, full, outer, i * S::kDepth, batch);
        } else {
          static_assert(S::kBColumns == 64);  // one box, either way
          copy_in_blocks(b, maps.b, full, S::kTurnB ? outer : i * S::kDepth, S::kTurnB ? i * S::kDepth : outer, batch,
                         cluster.blocks_of_part());
        }
      });
    return;
  }

  take_registers<240>();
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const auto release = [&] { stages.release_in(lane < S::kShare, cluster.first_of_part() + lane); };
  sum_t<In> sums[S::kColumns / 2];
  for (int i = steps.begin; i < steps.end; ++i) {
    const uint8_t* const a = stages.take();
    fence_products();
#pragma unroll
    for (int s = 0; s < kRowBytes / kProductBytes; ++s)
      multiply<In, S::kTurnA, S::kTurnB>(sums, operand<S::kTurnA>(a, group, s),
                                         operand<S::kTurnB>(a + S::kABytes, 0, s), i - steps.begin + s > 0);
    commit_products();
    wait_products<1>();  // those of the stage before
    if (i > steps.begin) release();
  }
  wait_products<0>();
  pin(sums);
  release();

  // A block has one quarter of a group at most, whose sums from others lie in the order of their parts.
  const int slot = S::kSplit == 2 ? group : 0;
  uint8_t* const mine = sent + slot * (S::kSplit - 1) * S::kSentBytes;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int owner = S::owner(group, half);
    if (owner == cluster.part()) continue;
    const int before = cluster.part() < owner ? cluster.part() : cluster.part() - 1;
    auto* const to = reinterpret_cast<float4*>(mine + before * S::kSentBytes) + thread;
#pragma unroll
    for (int i = 0; i < S::kSums; i += 4) {
      const float* const v = sums + half * S::kSums + i;
      store_four_in(to + i / 4 * 128, cluster.with_part(owner), v[0], v[1], v[2], v[3]);
    }
    __syncwarp();
    if (lane == 0) arrive_in(arrived + group, cluster.with_part(owner));
  }

  const int row0 = row * S::kRows + 64 * group;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (S::owner(group, half) != cluster.part()) continue;
    wait_for_blocks(arrived + group, 0);
    const auto* const from = reinterpret_cast<const float4*>(mine) + thread;
    float all[S::kSums];
#pragma unroll
    for (int i = 0; i < S::kSums; i += 4) {
      const float* const own = sums + half * S::kSums + i;
#pragma unroll
      for (int part = 0; part < S::kSplit; ++part) {
        float4 v{own[0], own[1], own[2], own[3]};
        if (part != cluster.part())
          v = from[(part < cluster.part() ? part : part - 1) * (S::kSentBytes / 16) + i / 4 * 128];
        if (part == 0) {
          all[i] = v.x, all[i + 1] = v.y, all[i + 2] = v.z, all[i + 3] = v.w;
        } else {
          all[i] += v.x, all[i + 1] += v.y, all[i + 2] += v.z, all[i + 3] += v.w;
        }
      }
    }
    uint8_t* const boxes = results + slot * S::kBoxes * S::kBoxBytes;
    const int column0 = column * S::kColumns + half * S::kQuarter;
#pragma unroll
    for (int i = 0; i < S::kSums; i += 2) {
      const int in_quarter = i / 4 * 8 + lane % 4 * 2, box = in_quarter / S::kOutColumns;
      const int from_column = column0 + in_quarter;
      store_pair<Out>(boxes + box * S::kBoxBytes +
                          swizzled_element<Out>(thread / 32 * 16 + lane / 4 + 4 * (i % 4), in_quarter % S::kOutColumns),
                      finish(all[i], from_column, n), finish(all[i + 1], from_column + 1, n));
    }
    fence_shared();
    named_sync(1 + group, 128);
    if (thread == 0) {
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box)
        if (row0 < m && column0 + box * S::kOutColumns < n)
          copy_out(maps.c, boxes + box * S::kBoxBytes, column0 + box * S::kOutColumns, row0, batch);
      commit_out();
      wait_out_read();
    }
  }
  cluster_sync();  // until then others may still tell this block that they are done with a stage
#endif
}

}  // namespace strata::cuda
