#pragma once
// Which tiles of a result a block computes, in which order.

#include "strata/cuda/tile/shared_tile.cuh"

namespace strata::cuda::tile {

/// Tiles of a matrix, of several matrices one after the other, in bands of `band` rows of tiles, within a band column
/// after column: what blocks work on at the same time lies in a rectangle, whose operands the L2 cache holds.
struct Bands {
  int rows = 0, columns = 0, matrices = 1, band = 1;

  __host__ __device__ __forceinline__ int total() const { return rows * columns * matrices; }
  __device__ __forceinline__ void locate(int at, int& row, int& column, int& matrix) const {
    matrix = at / (rows * columns);
    at -= matrix * rows * columns;
    const int first = at / (band * columns) * band, rest = at - first * columns;
    const int height = rows - first < band ? rows - first : band;
    row = first + rest % height, column = rest / height;
  }
};

/// A block that stays and takes every gridDim.x-th piece of work: for (Turns t(total); t.more(); t.next()) ... t.at
struct Turns {
  int at, total;
  __device__ __forceinline__ explicit Turns(int total) : at(static_cast<int>(blockIdx.x)), total(total) {}
  __device__ __forceinline__ bool more() const { return at < total; }
  __device__ __forceinline__ void next() { at += static_cast<int>(gridDim.x); }
};

/// Part `at` of `parts` of a sum's steps, from begin to before end: as many each, but for one more in some of the last.
struct Span {
  int begin, end;
  __device__ __forceinline__ Span(int steps, int parts, int at)
      : begin(static_cast<int>(int64_t{steps} * at / parts)),
        end(static_cast<int>(int64_t{steps} * (at + 1) / parts)) {}
};

/// The blocks of a cluster of kShare * kSplit: kSplit of them have the same tiles and a part of the sum each; kShare
/// have the same part, of tiles one below the other, and bring the operand that these have in common together. Launched
/// as one cluster for kShare tiles, whose number is the cluster's.
template <int kShare, int kSplit>
struct ClusterTiles {
  static constexpr int kBlocks = kShare * kSplit;
  int cluster, rank;
  __device__ __forceinline__ ClusterTiles()
      : cluster(static_cast<int>(blockIdx.x) / kBlocks), rank(static_cast<int>(blockIdx.x) % kBlocks) {}
  __device__ __forceinline__ int tile() const { return rank % kShare; }
  __device__ __forceinline__ int part() const { return rank / kShare; }
  /// The block that has the same tile and another part of the sum.
  __device__ __forceinline__ int with_part(int part) const { return part * kShare + tile(); }
  /// The first of the blocks that have this one's part; they follow one another.
  __device__ __forceinline__ int first_of_part() const { return part() * kShare; }
  __device__ __forceinline__ uint32_t blocks_of_part() const { return ((1u << kShare) - 1) << first_of_part(); }
};

}  // namespace strata::cuda::tile
