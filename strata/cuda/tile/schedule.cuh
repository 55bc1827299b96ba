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

}  // namespace strata::cuda::tile
