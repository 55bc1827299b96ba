#pragma once
// Products by groups of rows from tiles, with the stages and warpgroups of the matrix product (gemm_tiles.cuh). Where
// groups begin is read on the device, so that blocks find their tiles by walking the groups; a group begins at any row.

#include "strata/ops/matmul/gemm_tiles.cuh"

namespace strata::cuda {

/// Groups e of rows offsets[e] to offsets[e + 1] of n, and the product's other sizes: results are `rows` (of grouped
/// outer products; else those of the groups) by `columns`, their depth (of outer products: the group's rows) `depth`.
struct Groups {
  const int64_t* offsets;
  int count, n, rows, columns, depth;
  /// The result of grouped rows, for tiles that a group ends in, and how far its rows are apart.
  void* y;
  int64_t y_row;
};

/// The tiles of a block, one after the other.
template <class S, bool kOuter>
class GroupWalk {
 public:
  __device__ __forceinline__ explicit GroupWalk(const Groups& g)
      : g_(g), columns_((g.columns + S::kColumns - 1) / S::kColumns) {
    if constexpr (!kOuter) enter();
  }

  /// Tile `at`, a larger one each time; false where there are no more.
  __device__ __forceinline__ bool find(int at) {
    constexpr int kBand = 16;
    if constexpr (kOuter) {
      const tile::Bands bands{(g_.rows + S::kRows - 1) / S::kRows, columns_, g_.count, kBand};
      if (at >= bands.total()) return false;
      bands.locate(at, row, column, group);
      enter();
      row *= S::kRows, depth0 = first_, depth = last_ - first_;
    } else {
      for (; at >= before_ + tiles(); enter()) {
        before_ += tiles();
        if (++group >= g_.count) return false;
      }
      const tile::Bands bands{tiles() / columns_, columns_, 1, kBand};
      int only;
      bands.locate(at - before_, row, column, only);
      row = first_ + row * S::kRows, rows = last_ - row, depth = g_.depth;
    }
    column *= S::kColumns;
    return true;
  }

  int group = 0, row = 0, column = 0;  ///< the tile's first row and column, of A's and B's
  int rows = 0;                        ///< of grouped rows: how many the group has from there on
  int depth0 = 0, depth = 0;           ///< where the sum begins, and its length

 private:
  // Offsets that are none are brought to rows that there are, so that nothing else is written.
  __device__ __forceinline__ void enter() {
    const int64_t first = g_.offsets[group], last = g_.offsets[group + 1];
    first_ = first < 0 ? 0 : first > g_.n ? g_.n : static_cast<int>(first);
    last_ = last < first_ ? first_ : last > g_.n ? g_.n : static_cast<int>(last);
  }
  __device__ __forceinline__ int tiles() const { return (last_ - first_ + S::kRows - 1) / S::kRows * columns_; }

  const Groups& g_;
  int columns_, first_ = 0, last_ = 0, before_ = 0;
};

/// Zeros in the rows of a stage's turned operands from `kept` on, which belong to the next group: a NaN there must not
/// reach this one's sums. By all that multiply.
template <class S>
__device__ __forceinline__ void clear_rows(uint8_t* stage, int kept) {
  constexpr int kChunk = S::kDepth * tile::kRowBytes;  // of 64 columns
  for (int chunk = 0; chunk < (S::kABytes + S::kBBytes) / kChunk; ++chunk)
    for (int at = kept * tile::kRowBytes + static_cast<int>(threadIdx.x) * 16; at < kChunk; at += 128 * S::kGroups * 16)
      *reinterpret_cast<uint4*>(stage + chunk * kChunk + at) = uint4{};
  tile::fence_shared();
  tile::named_sync(1 + S::kGroups, 128 * S::kGroups);
}

/// y[n, m] = sum_k x[n, k] w[e, m, k] for the rows of group e; with kOuter y[e, m, k] = sum_n g[n, m] x[n, k] over
/// them, both operands turned. A block a multiprocessor, which stays.
template <class T, class S, bool kOuter>
__global__ void __launch_bounds__(S::kThreads, 1)
    grouped_tiles_kernel(const __grid_constant__ GemmMaps maps, const Groups g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace tile;
  static_assert(!kOuter || (S::kTurnA && S::kTurnB));
  uint8_t* const results = shared_memory();
  typename S::Stages stages(results + 2 * S::kGroups * S::kBoxBytes);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) stages.init(4 * S::kGroups);
  __syncthreads();
  GroupWalk<S, kOuter> walk(g);

  if (warpgroup == S::kGroups) {  // copies
    give_registers<24>();
    if (threadIdx.x % 128 != 0) return;
    for (int at = static_cast<int>(blockIdx.x); walk.find(at); at += static_cast<int>(gridDim.x))
      for (int i = 0; i < walk.depth; i += S::kDepth)
        stages.fill([&](uint8_t* to, uint64_t* full) {
          copy_operand<S::kTurnA, S::kRows>(to, maps.a, full, walk.row, walk.depth0 + i, 0);
          copy_operand<S::kTurnB, S::kColumns>(to + S::kABytes, maps.b, full, walk.column, walk.depth0 + i,
                                               kOuter ? 0 : walk.group);
        });
    return;
  }

  take_registers<240>();
  const int thread = static_cast<int>(threadIdx.x) % 128;
  uint8_t* const boxes = results + 2 * warpgroup * S::kBoxBytes;
  for (int at = static_cast<int>(blockIdx.x); walk.find(at); at += static_cast<int>(gridDim.x)) {
    const int steps = (walk.depth + S::kDepth - 1) / S::kDepth, last = walk.depth % S::kDepth;
    float sums[S::kColumns / 2];
    for (int i = 0; i < steps; ++i) {
      const uint8_t* const stage = stages.take();
      if (kOuter && i + 1 == steps && last != 0) clear_rows<S>(const_cast<uint8_t*>(stage), last);
      multiply_stage<T, S>(sums, stage, warpgroup, i == 0);
      wait_products<1>();  // those of the stage before
      if (i > 0) stages.release(thread % 32 == 0);
    }
    wait_products<0>();
    if (steps > 0) stages.release(thread % 32 == 0);
    if (kOuter && steps == 0) {
#pragma unroll
      for (float& v : sums) v = 0;
    }
    pin(sums);

    const int row = walk.row + 64 * warpgroup, whole = kOuter ? g.rows - row : walk.rows - 64 * warpgroup;
    leave_tile<S>(
        boxes, sums, warpgroup, [](float v, int) { return narrow<T>(v); },
        [&](const uint8_t* box, int from) {
          const int column = walk.column + from;
          if (whole <= 0 || column >= g.columns) return;
          if (kOuter || whole >= 64) {
            if (thread == 0) copy_out(maps.c, box, column, row, kOuter ? walk.group : 0);
            return;
          }
          if constexpr (!kOuter)  // below are rows of the next group
            for (int i = thread; i < whole * 8; i += 128)
              if (column + i % 8 * 8 < g.columns)
                store_vec(static_cast<T*>(g.y) + (row + i / 8) * g.y_row + column + i % 8 * 8,
                          load_vec<8>(reinterpret_cast<const T*>(box + swizzled(i / 8, i % 8))));
        });
  }
  if (thread == 0) wait_out_read();
#endif
}

}  // namespace strata::cuda
