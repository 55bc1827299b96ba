#pragma once
// Launches of gemm_split_kernel, for one file for each dtype of operands.

#include "strata/cuda/current.h"
#include "strata/ops/matmul/gemm_split.cuh"
#include "strata/ops/matmul/gemm_split.h"
#include "strata/ops/matmul/gemm_tiles_launch.cuh"

namespace strata::cuda {

/// Takes what gemm_split() does where `g.in` is In's.
template <class In>
bool gemm_split_of(const SplitGemm& g, const TileJob& j);

namespace detail {

// False where not all clusters run at the same time, unless they must.
template <class In, class S>
bool launch_split(const SplitGemm& g, const TileJob& j, bool must_fit) {
  using Out = typename S::Out;
  constexpr auto kKernel = gemm_split_kernel<In, S, Scaled<Out>>;
  constexpr int kBlocks = S::kShare * S::kSplit, kHigh = S::kRows * S::kShare;
  const tile::Bands bands{static_cast<int>((j.m + kHigh - 1) / kHigh),
                          static_cast<int>((j.n + S::kColumns - 1) / S::kColumns), static_cast<int>(j.batches), 16};
  if (must_fit && bands.total() > tile::clusters_at_once<kKernel>(kBlocks, S::kThreads, S::kSharedBytes)) return false;
  const GemmMaps maps{tile::tensor_map(j.a, S::kTurnA ? 64 : S::kRows),
                      tile::tensor_map(j.b, S::kTurnB ? 64 : S::kBColumns), tile::tensor_map(j.c, 64)};
  Scaled<Out> finish;
  finish.alpha = g.alpha, finish.bias = static_cast<const Out*>(g.bias);
  tile::launch_clusters<kKernel>(kBlocks, kBlocks * bands.total(), S::kThreads, S::kSharedBytes, maps, bands,
                                 static_cast<int>(j.m), static_cast<int>(j.n), static_cast<int>(j.k), finish);
  return true;
}

template <class In, class Out, bool kTurnA, bool kTurnB>
bool choose_split(const SplitGemm& g, const TileJob& j) {
  const int64_t tiles = (j.m + 127) / 128 * ((j.n + 127) / 128) * j.batches, steps = (j.k + 63) / 64;
  const int64_t multiprocessors = properties(current_device()).multiprocessors;
  // A block wants some steps more than it has stages, or what the blocks send each other is most of its time.
  if (4 * tiles <= multiprocessors && steps >= 32)
    return launch_split<In, SplitShape<In, Out, 1, 4, kTurnA, kTurnB>>(g, j, false);
  if (2 * tiles > multiprocessors || steps < 16) return false;
  // Blocks that share an operand read three quarters of what they would alone, and that, from L2, is what limits them;
  // but clusters of four leave some multiprocessors over, and a second round would take as long as the first.
  if (j.m > 128 && launch_split<In, SplitShape<In, Out, 2, 2, kTurnA, kTurnB>>(g, j, true)) return true;
  return launch_split<In, SplitShape<In, Out, 1, 2, kTurnA, kTurnB>>(g, j, false);
}

}  // namespace detail

template <class In>
bool gemm_split_of(const SplitGemm& g, const TileJob& j) {
  const auto with = [&]<class Out>() {
    if (g.turn_a)
      return g.turn_b ? detail::choose_split<In, Out, true, true>(g, j)
                      : detail::choose_split<In, Out, true, false>(g, j);
    return g.turn_b ? detail::choose_split<In, Out, false, true>(g, j)
                    : detail::choose_split<In, Out, false, false>(g, j);
  };
  return g.out == DType::f32 ? with.template operator()<float>() : with.template operator()<In>();
}

}  // namespace strata::cuda
