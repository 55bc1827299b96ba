#pragma once
// What single threads do that is neither C++ nor CUDA's library: arithmetic as the hardware gives it, and counts in
// global memory on which blocks wait for each other.

#include "strata/cuda/tile/shared_tile.cuh"

#ifndef STRATA_TILE_EMULATION
namespace strata::cuda::tile {

/// 2^x and 1 / x, as the hardware gives them.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The halves of a product by a constant, in one instruction: nvcc adds zeros to the upper halves of products in 64
/// bits.
template <uint32_t kFactor>
__device__ __forceinline__ void multiply_wide(uint32_t x, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b64 p;\nmul.wide.u32 p, %2, %3;\nmov.b64 {%0, %1}, p;\n}"
      : "=r"(low), "=r"(high)
      : "r"(x), "n"(kFactor));
}
/// Four bytes of those of `low` (0 to 3) and `high` (4 to 7), each named by four bits of `selector`; where the highest
/// of these is set, eight times the byte's sign, which __byte_perm() does not promise.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t x;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(low), "r"(high), "r"(selector));
  return x;
}

/// Waits until the count at p is `wanted` or more: what the thread that posted it wrote before is there.
__device__ __forceinline__ void wait_count(const int* p, int wanted) {
#ifdef STRATA_HOPPER_DEBUG
  const long long start = clock64();
#endif
  for (int have = -1; have < wanted;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(have) : "l"(p) : "memory");
#ifdef STRATA_HOPPER_DEBUG
    if (clock64() - start > 200000000LL) __trap();
#endif
  }
}
__device__ __forceinline__ void post_count(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
/// A count at p, 0 at first, of threads that arrived; after a __syncthreads() what their blocks wrote before is seen by
/// who waits for them. Counts may wrap around.
__device__ __forceinline__ void count_arrival(unsigned* p) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}
__device__ __forceinline__ void wait_arrivals(const unsigned* p, unsigned wanted) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(p) : "memory");
  } while (static_cast<int>(now - wanted) < 0);
}
/// 16 bytes that other blocks wrote during this launch (from the L2 cache), or that nothing writes during it.
__device__ __forceinline__ uint4 load_written(const void* p) {
  return __ldcg(static_cast<const uint4*>(p));
}
__device__ __forceinline__ uint4 load_constant(const void* p) {
  return __ldg(static_cast<const uint4*>(p));
}
/// Between counts and the copies that they order, which the copy engine does: after wait_count() and before
/// post_count().
__device__ __forceinline__ void fence_proxies() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
/// Four neighbours into shared memory, 16 bytes.
__device__ __forceinline__ void store_four(float4* to, float a, float b, float c, float d) {
  *to = float4{a, b, c, d};
}

}  // namespace strata::cuda::tile
#endif
