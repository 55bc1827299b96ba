#pragma once
// Launches of conv_gather_kernel.cuh.

#include "strata/ops/conv/conv_gather_kernel.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {

template <class Of, int Warpgroups, int Stages>
void launch_gather(const Gather& g) {
  constexpr int kBytes = gather_bytes<typename Of::T, Warpgroups, Stages>();
  static const cudaError_t allowed =
      cudaFuncSetAttribute(gather_kernel<Of, Warpgroups, Stages>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  check_cuda(allowed, "convolution", "cudaFuncSetAttribute");
  const auto blocks = static_cast<unsigned>(g.columns / kBlockN * tiles_m(g) * g.groups * g.splits);
  gather_kernel<Of, Warpgroups, Stages><<<blocks, 128 * Warpgroups, kBytes, stream()>>>(g);
}

/// The gathering of n images or volumes, whose geometry and pointers the caller has set.
template <bool Volume, bool Phases>
void run_gather(DType t, Device device, Gather& g, int64_t n) {
  const int multiprocessors = properties(device.index).multiprocessors;
  finish(g, n, static_cast<int>(16 / size_of(t)), multiprocessors, Volume);
  Tensor shares;
  if (g.splits > 1) {
    shares = workspace(DType::f32, device, int64_t{g.splits} * g.groups * g.m * g.columns);
    g.shares = static_cast<float*>(shares.raw_data());
  }
  const bool alone =
      int64_t{g.columns} / kBlockN * tiles_m(g) * g.groups * g.splits <= multiprocessors;  // on a multiprocessor
  const auto run = [&]<class T>() {
    using Of = GatherOf<T, Volume, Phases>;
    if constexpr (Volume) {
      if (g.rows == 256) return launch_gather<Of, 4, kTallStages>(g);
    }
    if (g.rows == 64)
      alone ? launch_gather<Of, 1, kDeepStages>(g) : launch_gather<Of, 1, kStages>(g);
    else
      alone ? launch_gather<Of, 2, kDeepStages>(g) : launch_gather<Of, 2, kStages>(g);
    if (g.splits == 1) return;
    const auto blocks = blocks_of(int64_t{g.groups} * g.m * g.total);
    gather_shares_kernel<GatherOf<T, true, true>><<<blocks, kShareThreads, 0, stream()>>>(g);
  };
  if (t == DType::f32) return run.template operator()<float>();
  if (t == DType::bf16) return run.template operator()<BFloat16>();
  run.template operator()<Half>();
}

/// That of results of several phases.
void run_phases_gather(DType t, Device device, Gather& g, int64_t n);

}  // namespace strata::conv_cuda
