#pragma once
// The cell of one step for all sequences, whose products the library has multiplied: where a step's product fills the
// card, the library's is faster than that of recurrence_walk.cuh. What the cell computes is the Step's.

#include "strata/ops/rnn/recurrence_cell.cuh"

namespace strata::recurrent {

inline constexpr int kCellThreads = 256;

/// Blocks of kCellThreads for `batch` rows of `hidden` units.
inline int64_t cell_blocks(int64_t batch, int64_t hidden) {
  return batch * ((hidden + kCellThreads - 1) / kCellThreads);
}

/// Iteration i of `step`: sums [batch, columns hidden] are what it multiplied, a block has units of one sequence.
template <class R, class Step>
__global__ void __launch_bounds__(kCellThreads)
    cell_kernel(const __grid_constant__ Step step, int64_t i, int64_t hidden, int64_t columns, const R* sums) {
  const unsigned blocks = static_cast<unsigned>((hidden + kCellThreads - 1) / kCellThreads);
  const int64_t row = blockIdx.x / blocks,
                unit = static_cast<int64_t>(blockIdx.x % blocks) * kCellThreads + static_cast<int64_t>(threadIdx.x);
  if (unit >= hidden) return;
  const R* const own = sums + row * columns * hidden + unit;
  const typename Step::In in = step.load(i, row, unit);
  step.store(i, row, unit, step.compute(i, in, [&](int gate) { return own[gate * hidden]; }));
}

}  // namespace strata::recurrent
