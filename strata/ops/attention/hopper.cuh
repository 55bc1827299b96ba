#pragma once
// Hopper's own instructions for the attention kernels: asynchronous products of a warpgroup (wgmma), bulk tensor copies
// (TMA) with their barriers, and registers moved between warpgroups. PTX ISA 8.0, sm_90a.
//
// A tile in shared memory is a number of chunks of 64 columns; a chunk has rows of 128 bytes whose 16-byte pieces are
// swizzled (piece p of row r at place p ^ (r % 8)), as the copies write and the products read them. Chunks begin at
// multiples of 1024 bytes.

#include <cuda.h>

#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda::hopper {

// ---- barriers ----

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init_barrier(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
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

/// Where a ring of buffers stands.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// ---- copies ----

/// Starts the copy of a box at (column, row, head, batch) to shared memory; what is outside of the tensor is zeros.
__device__ __forceinline__ void copy_in(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row,
                                        int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// Starts the copy of a box to global memory; what is outside of the tensor is not written.
__device__ __forceinline__ void copy_out(const CUtensorMap& map, const void* from, int column, int row, int head,
                                         int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void commit_out() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until this thread's copies out have read shared memory, or until they are complete.
__device__ __forceinline__ void wait_out_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait_out() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Before this thread's first copies by a map that a kernel wrote.
__device__ __forceinline__ void acquire_map(const CUtensorMap& map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&map) : "memory");
}

// ---- products ----

/// Descriptor of an operand whose rows are the product's inner dimension's ends: [M or N][K], K contiguous. A step of
/// 16 along K is 32 bytes further.
__device__ __forceinline__ uint64_t descriptor_k(const void* tile) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) |
         ((shared_address(tile) & 0x3ffff) >> 4);
}
/// Descriptor of a transposed operand: [K][M or N], chunks of 64 columns `chunk` bytes apart. A step of 16 along K is
/// 2048 bytes further.
__device__ __forceinline__ uint64_t descriptor_t(const void* tile, int chunk) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (static_cast<uint64_t>(chunk >> 4) << 16) |
         ((shared_address(tile) & 0x3ffff) >> 4);
}
/// The operand `bytes` further.
__device__ __forceinline__ uint64_t advanced(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

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
#define STRATA_OUT8(i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
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
#define STRATA_WGMMA(N, R, ...)                                                                 \
  template <class T, bool kShared, int kTransA, int kTransB, class A>                           \
  __device__ __forceinline__ void wgmma(float(&d)[R], const A& a, uint64_t b, int accumulate) { \
    if constexpr (std::is_same_v<T, BFloat16>) {                                                \
      STRATA_WGMMA_ONE(N, R, "bf16.bf16", __VA_ARGS__)                                          \
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

struct SharedA {
  uint64_t shared;
};
struct RegisterA {
  const uint32_t (&regs)[4];
};
/// a from shared memory; kTransA, kTransB: the operand is transposed there (descriptor_t).
template <class T, bool kTransA, bool kTransB, int R>
__device__ __forceinline__ void multiply(float (&d)[R], uint64_t a, uint64_t b, bool accumulate) {
  wgmma<T, true, kTransA, kTransB>(d, SharedA{a}, b, accumulate);
}
/// a from registers, as mma.sync's m16n8k16 takes it.
template <class T, bool kTransB, int R>
__device__ __forceinline__ void multiply(float (&d)[R], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  wgmma<T, false, 0, kTransB>(d, RegisterA{a}, b, accumulate);
}

/// Moves registers between warpgroups: each names how many its threads want from now on.
template <int N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/// Two neighbours rounded into one register.
template <class T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
  uint32_t r;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}
template <class T>
__device__ __forceinline__ float2 unpack2(uint32_t v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&v));
  }
}
/// Four 8x8 matrices to shared memory; lanes 8m .. 8m + 7 hold the addresses of matrix m's rows.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
/// The same, each matrix transposed.
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

/// The bytes of chunks of 64 columns.
template <int D>
inline constexpr int kChunks = (D + 63) / 64;

// ---- on the host ----

/// Multiprocessors of the current device.
int multiprocessors();
/// Whether copies can read and write this operand.
bool fits_copies(const AttentionView& v, int64_t batch, int64_t heads, int64_t time);
/// A map of the operand for boxes of 64 columns by `rows` rows.
CUtensorMap tensor_map(DType dtype, const AttentionView& v, int64_t batch, int64_t heads, int64_t time, int64_t size,
                       int rows);

/// Maps of operands that hold several sequences: `of_keys` has a bit for each that lies along the keys.
struct MapSet {
  CUtensorMap maps[6];
  const void* data[6];
  int64_t row_bytes[6];
  int count, of_keys;
  void add(const CUtensorMap& map, const AttentionView& v, bool keys) {
    maps[count] = map, data[count] = v.data, row_bytes[count] = 2 * v.time;
    of_keys |= keys << count, ++count;
  }
};
/// Writes for each part of `s` the maps of its rows alone, so that copies end where the sequence does; returns them,
/// `set.count` after one another for each part. `space` keeps their memory.
const CUtensorMap* maps_of_sequences(const MapSet& set, const Sequences& s, int64_t parts, const Tensor& like_this,
                                     Tensor& space);

}  // namespace strata::attention_cuda::hopper
