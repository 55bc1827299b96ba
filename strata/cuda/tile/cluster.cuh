#pragma once
// Blocks of a cluster, which run at the same time on neighbouring multiprocessors: copies that land in several of them,
// stores into each other's shared memory, barriers of all. PTX ISA 8.0, sm_90.

#include "strata/cuda/tile/copy.cuh"

#ifndef STRATA_TILE_EMULATION
namespace strata::cuda::tile {

/// Waits for all threads of the cluster's blocks that have not ended: what they stored before is there. First, so that
/// all blocks and their barriers are there; and last, so that none ends whose memory another one still uses.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/// Where block `rank` has what lies at p in this one.
__device__ __forceinline__ uint32_t address_in(const void* p, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
  return there;
}
/// Arrives on block `rank`'s barrier: what this thread stored before, and what its warp did before a __syncwarp(), is
/// there for who waits for it by wait_for_blocks().
__device__ __forceinline__ void arrive_in(uint64_t* b, int rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(b, rank)) : "memory");
}
__device__ __forceinline__ void wait_for_blocks(uint64_t* b, uint32_t parity) {
  const uint32_t a = shared_address(b);
#ifdef STRATA_HOPPER_DEBUG
  const long long start = clock64();
#endif
  for (uint32_t done = 0; !done;) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(a), "r"(parity)
        : "memory");
#ifdef STRATA_HOPPER_DEBUG
    if (clock64() - start > 200000000LL) __trap();
#endif
  }
}
/// Four numbers into block `rank`'s shared memory, where `to` is in this one's; 16 bytes, aligned.
__device__ __forceinline__ void store_four_in(float4* to, int rank, float a, float b, float c, float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address_in(to, rank)), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}
/// Starts the copy of a box, once from global memory, to the same place in all blocks of which `blocks` has the bit;
/// in each it completes on the barrier at the same place.
__device__ __forceinline__ void copy_in_blocks(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row,
                                               int batch, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(batch), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

}  // namespace strata::cuda::tile
#endif
