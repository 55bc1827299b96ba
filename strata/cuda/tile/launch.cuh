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
  prepared = device;
}
/// Queues `kKernel` on the current stream of the current device.
template <auto kKernel, class... A>
void launch(int blocks, int threads, int shared_bytes, const A&... arguments) {
  prepare<kKernel>(shared_bytes);
  kKernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes),
            stream()>>>(arguments...);
}

namespace detail {
struct ClusterLaunch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute size = {};
  ClusterLaunch(int cluster, int blocks, int threads, int shared_bytes) {
    config.gridDim = dim3(static_cast<unsigned>(blocks)), config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes), config.stream = stream();
    size.id = cudaLaunchAttributeClusterDimension, size.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    config.attrs = &size, config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
};
}  // namespace detail

/// The same in clusters of `cluster` blocks, into which `blocks` divides.
template <auto kKernel, class... A>
void launch_clusters(int cluster, int blocks, int threads, int shared_bytes, const A&... arguments) {
  prepare<kKernel>(shared_bytes);
  const detail::ClusterLaunch l(cluster, blocks, threads, shared_bytes);
  check_cuda(cudaLaunchKernelEx(&l.config, kKernel, arguments...), "tiles", "cudaLaunchKernelEx");
}
/// How many such clusters run at the same time: blocks of one stand side by side, so that some multiprocessors may be
/// left over.
template <auto kKernel>
int clusters_at_once(int cluster, int threads, int shared_bytes) {
  thread_local int asked = -1, answer = 0;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tiles", "cudaGetDevice");
  if (asked == device) return answer;
  prepare<kKernel>(shared_bytes);
  const detail::ClusterLaunch l(cluster, cluster, threads, shared_bytes);
  check_cuda(cudaOccupancyMaxActiveClusters(&answer, kKernel, &l.config), "tiles", "cudaOccupancyMaxActiveClusters");
  asked = device;
  return answer;
}

/// Blocks that stay: as many as there are multiprocessors and pieces of work.
inline int staying_blocks(int pieces) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tiles", "cudaGetDevice");
  const int most = properties(device).multiprocessors;
  return pieces < most ? pieces : most;
}

}  // namespace strata::cuda::tile
