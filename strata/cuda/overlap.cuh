#pragma once
// Kernels that begin while those before them on the stream end (programmatic dependent launch, compute capability 9):
// their blocks are placed, and may ask for memory that no kernel writes, before they wait. Where launches follow each
// other by a microsecond or two, as in a step of generation, that is a good part of the time.
//
// A kernel that is queued by launch_early() calls wait_for_previous() in every thread before it reads or writes memory,
// and before any thread returns. let_next_begin() is a hint that any kernel may give, at best first of all.

#include "strata/cuda/check.cuh"
#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// Returns when all that was queued before this kernel is done, and its stores are seen.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// A kernel that launch_early() queues behind this one may begin once all blocks of this one have said so, or ended.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Asks for the line at p in the second cache. No value is read: what is stored there later is seen.
__device__ __forceinline__ void fetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// Queues a kernel that begins early where the card can; in clusters of `cluster` blocks along x where that is above 1.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared, int cluster,
                  const Arguments&... arguments) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "launch_early", "cudaGetDevice");
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks, config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream();
  config.attrs = attributes;
  if (properties(device).major >= 9) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "launch_early",
             "cudaLaunchKernelEx");
}

}  // namespace strata::cuda
