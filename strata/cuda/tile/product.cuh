#pragma once
// Hopper's matrix products of a warpgroup (wgmma; PTX ISA 8.0, code for sm_90a alone): sums [64][N] in f32 registers of
// an operand a [64][K] in shared memory or registers and b [K][N] in shared memory; of s8 in registers of 32-bit
// integers.
//
// Shared operands are tiles (shared_tile.cuh): rows of 128 bytes whose 16-byte pieces are swizzled, beginning at
// multiples of 1024 bytes. Products run on: registers and tiles that they read or write are theirs until
// wait_products().

#include "strata/cuda/tile/barrier.cuh"

namespace strata::cuda::tile {

/// Descriptor of an operand whose rows are the product's outer dimension: [M or N][K], K contiguous. A step of 16 along
/// K is 32 bytes further.
__device__ __forceinline__ uint64_t descriptor_k(uint32_t tile) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) | ((tile & 0x3ffff) >> 4);
}
__device__ __forceinline__ uint64_t descriptor_k(const void* tile) {
  return descriptor_k(shared_address(tile));
}
/// Descriptor of a transposed operand: [K][M or N], chunks of 64 columns `chunk` bytes apart. A step of 16 along K is
/// 2048 bytes further.
__device__ __forceinline__ uint64_t descriptor_t(uint32_t tile, uint32_t chunk) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (static_cast<uint64_t>(chunk >> 4) << 16) |
         ((tile & 0x3ffff) >> 4);
}
__device__ __forceinline__ uint64_t descriptor_t(const void* tile, uint32_t chunk) {
  return descriptor_t(shared_address(tile), chunk);
}
/// The operand `bytes` further.
__device__ __forceinline__ uint64_t advanced(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

/// What a product takes: elements of one type, or of two (E4M3 and E5M2).
template <class A, class B>
struct Pair {};
template <class T>
inline constexpr bool kFp8 = std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2> ||
                             std::is_same_v<T, Pair<E4M3, E5M2>> || std::is_same_v<T, Pair<E5M2, E4M3>>;
template <class T>
inline constexpr bool kEightBits = kFp8<T> || std::is_same_v<T, int8_t>;
/// Bytes of one product's depth: 16 numbers of 16 bits, 32 of eight, 8 of f32.
inline constexpr int kProductBytes = 32;
/// What sums of products are.
template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;

#ifndef STRATA_TILE_EMULATION
/// Between ordinary uses of registers and products that read or write them.
__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all but the last `Pending` groups of products.
template <int Pending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Keeps the compiler from moving uses of these registers across.
template <int N>
__device__ __forceinline__ void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(uint32_t (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(int32_t (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// d += a b, or d = a b where accumulate is 0, of a warpgroup: d is [64][N], the K of a and b is 16. Thread t has rows
// 16 (t / 32) + t % 32 / 4 and 8 more, of each 8 columns 2 (t % 4) and the next: d[4 j + e] is row + 8 (e / 2), column
// 8 j + 2 (t % 4) + e % 2.
#define STRATA_ONES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9"
#define STRATA_TEN(t) \
  ", %" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define STRATA_TWO(t) ", %" #t "0, %" #t "1"
#define STRATA_FOUR(t) STRATA_TWO(t) ", %" #t "2, %" #t "3"
#define STRATA_SIX(t) STRATA_FOUR(t) ", %" #t "4, %" #t "5"
#define STRATA_EIGHT(t) STRATA_SIX(t) ", %" #t "6, %" #t "7"
#define STRATA_REGS16 STRATA_ONES STRATA_SIX(1)
#define STRATA_REGS32 STRATA_ONES STRATA_TEN(1) STRATA_TEN(2) STRATA_TWO(3)
#define STRATA_REGS40 STRATA_ONES STRATA_TEN(1) STRATA_TEN(2) STRATA_TEN(3)
#define STRATA_REGS48 STRATA_REGS40 STRATA_EIGHT(4)
#define STRATA_REGS64 STRATA_REGS40 STRATA_TEN(4) STRATA_TEN(5) STRATA_FOUR(6)
#define STRATA_REGS88 STRATA_REGS40 STRATA_TEN(4) STRATA_TEN(5) STRATA_TEN(6) STRATA_TEN(7) STRATA_EIGHT(8)
#define STRATA_REGS128                                                                                             \
  STRATA_REGS40 STRATA_TEN(4) STRATA_TEN(5) STRATA_TEN(6) STRATA_TEN(7) STRATA_TEN(8) STRATA_TEN(9) STRATA_TEN(10) \
      STRATA_TEN(11) STRATA_EIGHT(12)
#define STRATA_OUT8(i)                                                                                      \
  STRATA_SUM(d[i]), STRATA_SUM(d[i + 1]), STRATA_SUM(d[i + 2]), STRATA_SUM(d[i + 3]), STRATA_SUM(d[i + 4]), \
      STRATA_SUM(d[i + 5]), STRATA_SUM(d[i + 6]), STRATA_SUM(d[i + 7])
#define STRATA_OUT16 STRATA_OUT8(0), STRATA_OUT8(8)
#define STRATA_OUT32 STRATA_OUT16, STRATA_OUT8(16), STRATA_OUT8(24)
#define STRATA_OUT40 STRATA_OUT32, STRATA_OUT8(32)
#define STRATA_OUT48 STRATA_OUT40, STRATA_OUT8(40)
#define STRATA_OUT64 STRATA_OUT48, STRATA_OUT8(48), STRATA_OUT8(56)
#define STRATA_OUT88 STRATA_OUT64, STRATA_OUT8(64), STRATA_OUT8(72), STRATA_OUT8(80)
#define STRATA_OUT128 \
  STRATA_OUT88, STRATA_OUT8(88), STRATA_OUT8(96), STRATA_OUT8(104), STRATA_OUT8(112), STRATA_OUT8(120)

#define STRATA_WGMMA_ONE(N, R, TYPES, R0, R1, R2, R3, R4, R5, R6)                                               \
  /* both from shared memory */                                                                                 \
  if constexpr (kShared) {                                                                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N          \
                 "k16.f32." TYPES " {" STRATA_REGS##R "}, %" #R0 ", %" #R1 ", p, 1, 1, %" #R3 ", %" #R4 ";\n}"  \
                 : STRATA_OUT##R                                                                                \
                 : "l"(a.shared), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB)                           \
                 : "memory");                                                                                   \
  } else {                                                                                                      \
    asm volatile(                                                                                               \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #R5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES  \
        " {" STRATA_REGS##R "}, {%" #R0 ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", p, 1, 1, %" #R6 ";\n}"      \
        : STRATA_OUT##R                                                                                         \
        : "r"(a.regs[0]), "r"(a.regs[1]), "r"(a.regs[2]), "r"(a.regs[3]), "l"(b), "r"(accumulate), "n"(kTransB) \
        : "memory");                                                                                            \
  }
/* f32 operands, rounded to TF32, both from shared memory: there is no transposed form */
#define STRATA_WGMMA_TF32(N, R, R0, R1, R2, ...)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k8.f32.tf32.tf32 {" STRATA_REGS##R "}, %" #R0 ", %" #R1 ", p, 1, 1;\n}"              \
               : STRATA_OUT##R                                                                       \
               : "l"(a.shared), "l"(b), "r"(accumulate)                                              \
               : "memory");
/* eight bits: K is 32, neither operand is transposed */
#define STRATA_WGMMA_EIGHT(N, R, SUMS, TYPES, SIGNS, R0, R1, R2, R3, R4, R5, ...)                                      \
  if constexpr (kShared) {                                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32." SUMS     \
                 "." TYPES " {" STRATA_REGS##R "}, %" #R0 ", %" #R1 ", p" SIGNS ";\n}"                                 \
                 : STRATA_OUT##R                                                                                       \
                 : "l"(a.shared), "l"(b), "r"(accumulate)                                                              \
                 : "memory");                                                                                          \
  } else {                                                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32." SUMS     \
                 "." TYPES " {" STRATA_REGS##R "}, {%" #R0 ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", p" SIGNS ";\n}" \
                 : STRATA_OUT##R                                                                                       \
                 : "r"(a.regs[0]), "r"(a.regs[1]), "r"(a.regs[2]), "r"(a.regs[3]), "l"(b), "r"(accumulate)             \
                 : "memory");                                                                                          \
  }
#define STRATA_SUM(x) "+f"(x)
#define STRATA_WGMMA(N, R, ...)                                                                 \
  template <class T, bool kShared, int kTransA, int kTransB, class A>                           \
  __device__ __forceinline__ void wgmma(float(&d)[R], const A& a, uint64_t b, int accumulate) { \
    if constexpr (std::is_same_v<T, BFloat16>) {                                                \
      STRATA_WGMMA_ONE(N, R, "bf16.bf16", __VA_ARGS__)                                          \
    } else if constexpr (std::is_same_v<T, float>) {                                            \
      static_assert(kShared && !kTransA && !kTransB);                                           \
      STRATA_WGMMA_TF32(N, R, __VA_ARGS__)                                                      \
    } else if constexpr (kFp8<T>) {                                                             \
      static_assert(!kTransA && !kTransB);                                                      \
      if constexpr (std::is_same_v<T, E4M3>) {                                                  \
        STRATA_WGMMA_EIGHT(N, R, "f32", "e4m3.e4m3", ", 1, 1", __VA_ARGS__)                     \
      } else if constexpr (std::is_same_v<T, E5M2>) {                                           \
        STRATA_WGMMA_EIGHT(N, R, "f32", "e5m2.e5m2", ", 1, 1", __VA_ARGS__)                     \
      } else if constexpr (std::is_same_v<T, Pair<E4M3, E5M2>>) {                               \
        STRATA_WGMMA_EIGHT(N, R, "f32", "e4m3.e5m2", ", 1, 1", __VA_ARGS__)                     \
      } else {                                                                                  \
        STRATA_WGMMA_EIGHT(N, R, "f32", "e5m2.e4m3", ", 1, 1", __VA_ARGS__)                     \
      }                                                                                         \
    } else {                                                                                    \
      STRATA_WGMMA_ONE(N, R, "f16.f16", __VA_ARGS__)                                            \
    }                                                                                           \
  }
STRATA_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
STRATA_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
STRATA_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
STRATA_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
STRATA_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
STRATA_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
STRATA_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef STRATA_SUM
#define STRATA_SUM(x) "+r"(x)
#define STRATA_WGMMA_S8(N, R, ...)                                                                \
  template <class T, bool kShared, int kTransA, int kTransB, class A>                             \
  __device__ __forceinline__ void wgmma(int32_t(&d)[R], const A& a, uint64_t b, int accumulate) { \
    static_assert(std::is_same_v<T, int8_t> && !kTransA && !kTransB);                             \
    STRATA_WGMMA_EIGHT(N, R, "s32", "s8.s8", "", __VA_ARGS__)                                     \
  }
STRATA_WGMMA_S8(64, 32, 32, 33, 34, 35, 36, 37, 38)
STRATA_WGMMA_S8(128, 64, 64, 65, 66, 67, 68, 69, 70)
STRATA_WGMMA_S8(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef STRATA_EIGHT
#undef STRATA_FOUR
#undef STRATA_ONES
#undef STRATA_OUT128
#undef STRATA_OUT16
#undef STRATA_OUT32
#undef STRATA_OUT40
#undef STRATA_OUT48
#undef STRATA_OUT64
#undef STRATA_OUT8
#undef STRATA_OUT88
#undef STRATA_REGS128
#undef STRATA_REGS16
#undef STRATA_REGS32
#undef STRATA_REGS40
#undef STRATA_REGS48
#undef STRATA_REGS64
#undef STRATA_REGS88
#undef STRATA_SIX
#undef STRATA_SUM
#undef STRATA_TEN
#undef STRATA_TWO
#undef STRATA_WGMMA
#undef STRATA_WGMMA_EIGHT
#undef STRATA_WGMMA_ONE
#undef STRATA_WGMMA_S8
#undef STRATA_WGMMA_TF32
#endif

struct SharedA {
  uint64_t shared;
};
struct RegisterA {
  const uint32_t (&regs)[4];
};
/// a from shared memory; kTransA, kTransB: the operand is transposed there (descriptor_t). T is BFloat16 or Half with a
/// depth of 16; float, rounded to TF32, with a depth of 8, or one of eight bits with a depth of 32, without transposed
/// operands. Sums of fp8 keep about 14 bits of what is added (DeepSeek-V3, arXiv 2412.19437, 3.3.2).
template <class T, bool kTransA, bool kTransB, int R>
__device__ __forceinline__ void multiply(sum_t<T> (&d)[R], uint64_t a, uint64_t b, bool accumulate) {
  wgmma<T, true, kTransA, kTransB>(d, SharedA{a}, b, accumulate);
}
/// a from registers, as mma.sync's m16n8k16 (m16n8k32) takes it.
template <class T, bool kTransB, int R>
__device__ __forceinline__ void multiply(sum_t<T> (&d)[R], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  wgmma<T, false, 0, kTransB>(d, RegisterA{a}, b, accumulate);
}

#ifndef STRATA_TILE_EMULATION
/// Moves registers between warpgroups: each names how many its threads want from now on.
template <int N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
#endif

}  // namespace strata::cuda::tile
