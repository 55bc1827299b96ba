#pragma once
// Launches of kernels of tiles, whose shared memory is more than a launch allows by itself.

#include "strata/cuda/tile/tensor_map.cuh"

namespace strata::cuda::tile {

/// Raises the limit on shared memory. `kKernel` is a template argument so that each kernel remembers where it was
/// raised.
template <auto kKernel>
void prepare(int shared_bytes) {
  thread_local int prepared = -1;  // the device
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tiles", "cudaGetDevice");
  if (prepared == device) return;
  check_cuda(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "tiles",
             "cudaFuncSetAttribute");
  // The same of all these kernels, so that those of two launches may be on a multiprocessor at the same time.
  check_cuda(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
      "tiles", "cudaFuncSetAttribute");
  prepared = device;
}
/// Queues `kKernel` on the current stream of the current device.
template <auto kKernel, class... A>
void launch(int blocks, int threads, int shared_bytes, const A&... arguments) {
  prepare<kKernel>(shared_bytes);
  kKernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes),
            stream()>>>(arguments...);
}

/// Blocks that stay: as many as there are multiprocessors and pieces of work.
inline int staying_blocks(int pieces) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tiles", "cudaGetDevice");
  const int most = properties(device).multiprocessors;
  return pieces < most ? pieces : most;
}

}  // namespace strata::cuda::tile
