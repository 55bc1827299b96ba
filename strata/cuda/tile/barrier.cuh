#pragma once
// Barriers of a block: mbarriers, on which copies complete, and named ones of some of its threads; and where a ring of
// buffers between them stands. PTX ISA 8.0; mbarriers want sm_90.

#include <cstdint>

#include "strata/cuda/tile/shared_tile.cuh"

namespace strata::cuda::tile {

#ifndef STRATA_TILE_EMULATION
__device__ __forceinline__ void init_barrier(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
/// Makes init_barrier()'s barriers known to the copy engine.
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
/// Arrives, and announces bytes of copies that complete on this barrier.
__device__ __forceinline__ void arrive_expecting(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}
/// Waits for the end of the phase with this parity.
__device__ __forceinline__ void wait(uint64_t* b, uint32_t parity) {
  const uint32_t a = shared_address(b);
#ifdef STRATA_HOPPER_DEBUG
  const long long start = clock64();
#endif
  for (uint32_t done = 0; !done;) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(a), "r"(parity)
        : "memory");
#ifdef STRATA_HOPPER_DEBUG
    if (clock64() - start > 200000000LL) {
      __trap();
    }
#endif
  }
}
/// What was written to shared memory with ordinary stores becomes visible to copies and products.
__device__ __forceinline__ void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Barrier `id` of the block for this many threads; arrive() without waiting is the other half of a pair.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif

/// Where a ring of buffers stands.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace strata::cuda::tile
