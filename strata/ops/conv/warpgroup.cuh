#pragma once
// Hopper's matrix products of a warpgroup: sums [64, 128] in f32 of operands that lie in shared memory in rows of 128
// bytes, whose 16-byte pieces are swizzled: piece p of row r stands at place p ^ (r % 8). Only for code of sm_90a.

#include "strata/cuda/kernel.cuh"

namespace strata::conv_cuda {

/// An operand whose rows are along the sum (K), 1,024 bytes from eight rows to the next eight.
__device__ __forceinline__ uint64_t rows_along_k(uint32_t at) {
  return static_cast<uint64_t>((at & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
/// An operand whose rows are across the sum: each holds 64 elements of one k; the next 64 are `next` bytes away.
__device__ __forceinline__ uint64_t rows_across_k(uint32_t at, uint32_t next) {
  return static_cast<uint64_t>((at & 0x3ffff) >> 4) | static_cast<uint64_t>(next >> 4) << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all products; the sums pass through so that nothing of theirs is read before.
__device__ __forceinline__ void warpgroup_wait(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define STRATA_WGMMA(INSTRUCTION, TAIL)                                                                                \
  asm volatile(                                                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" INSTRUCTION                                                         \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                       \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                               \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                               \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1" TAIL ";\n}" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),    \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),         \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),        \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),        \
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),        \
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),        \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),        \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])                      \
      : "l"(a), "l"(b), "r"(add))

/// d = a b, or d += a b where `add` is 1: over 16 elements of 16 bits, or 8 of f32 rounded to TF32. Across says that
/// the rows of both operands are across the sum.
template <class T, bool Across>
__device__ __forceinline__ void warpgroup_product(float (&d)[64], uint64_t a, uint64_t b, int add) {
  if constexpr (std::is_same_v<T, float>) {
    static_assert(!Across);
    STRATA_WGMMA("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32", "");
  } else if constexpr (std::is_same_v<T, BFloat16> && Across) {
    STRATA_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", ", 1, 1");
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    STRATA_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", ", 0, 0");
  } else if constexpr (Across) {
    STRATA_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", ", 1, 1");
  } else {
    STRATA_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", ", 0, 0");
  }
}
#undef STRATA_WGMMA

}  // namespace strata::conv_cuda
