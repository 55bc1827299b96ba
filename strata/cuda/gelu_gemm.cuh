#pragma once
// A product of bf16 matrices on Hopper whose results go through GELU (tanh form) or its derivative, for the feed-forward
// layer of a GPT. cuBLASLt's kernels stop multiplying while they compute GELU; here two warpgroups take turns: one
// multiplies while the other finishes its tile (as CUTLASS's ping-pong schedule does).
//
// A cluster is two blocks, one above the other in C; each loads half of their common tile of B for both. In a block, one
// thread of the first warpgroup copies tiles of A and B (TMA) into a ring of stages, the other two warpgroups multiply
// (wgmma) tiles of [128, 128] in turn. Tiles in shared memory are chunks of 64 columns: rows of 128 bytes whose 16-byte
// pieces are swizzled (piece p of row r at place p ^ (r % 8)).

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace strata::cuda::gelu_tiles {

inline constexpr int kTile = 128;   // rows and columns of a tile of C
inline constexpr int kDepth = 64;   // of a stage
inline constexpr int kChunk = 64 * kTile * 2;         // bytes of 64 columns of a tile
inline constexpr int kBlock = 3 * 128;                // threads
inline constexpr int kStages = 4;
inline constexpr uint32_t kStageBytes = 2 * kTile * kDepth * 2;

enum class Kind : int {
  gelu,       // C = gelu(A B + bias), aux = A B + bias; B [K, N] lies by columns
  gelu_grad,  // C = (A B) gelu'(aux), sums[tile, column] = the sum of C over the rows of a tile; B lies by rows
};

struct Shared {
  alignas(1024) uint8_t a[kStages][kChunk];
  alignas(1024) uint8_t b[kStages][kChunk];
  alignas(1024) uint8_t out[2][2][kChunk];  // of each warpgroup: chunks of C and aux
  float sums[2][4][kTile];
  uint64_t full[kStages], empty[kStages], aux[2];
};
inline constexpr int kSharedBytes = static_cast<int>(sizeof(Shared)) + 1024;  // the block's memory begins anywhere

struct Job {
  int64_t n;
  int tiles_m, tiles_n, depth;  // numbers of tiles (tiles_m even) and of stages for one
  const __nv_bfloat16* bias;    // [n] or null
  float* sums;                  // [tiles_m, n] or null
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ uint32_t address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init_barrier(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(b)), "r"(arrivals));
}
__device__ __forceinline__ void expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(b)), "r"(bytes) : "memory");
}
// Arrives at this barrier of block `rank` of the cluster.
__device__ __forceinline__ void arrive_at(uint64_t* b, int rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(address(b)),
      "r"(rank)
      : "memory");
}
// Waits for the end of the phase with this parity.
__device__ __forceinline__ void wait(uint64_t* b, uint32_t parity) {
  for (uint32_t done = 0; !done;) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(address(b)), "r"(parity)
        : "memory");
  }
}
__device__ __forceinline__ void copy_in(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          address(to)),
      "l"(&map), "r"(address(barrier)), "r"(column), "r"(row)
      : "memory");
}
// To the same place in both blocks of the cluster.
__device__ __forceinline__ void copy_to_both(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"(address(to)),
      "l"(&map), "r"(address(barrier)), "r"(column), "r"(row), "h"(static_cast<uint16_t>(3))
      : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap& map, const void* from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(address(from)), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void sync_group(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
// The warpgroups take turns: each waits for its turn before it reads a tile's stages, whose barriers tell only odd phases
// from even ones.
__device__ __forceinline__ void wait_turn(int w) {
  asm volatile("bar.sync %0, 256;" ::"r"(3 + w) : "memory");
}
__device__ __forceinline__ void give_turn(int w) {
  asm volatile("bar.arrive %0, 256;" ::"r"(3 + w) : "memory");
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Descriptors of operands: [M or N][K] with K contiguous, and [K][N] in chunks of 64 columns.
__device__ __forceinline__ uint64_t descriptor(const void* tile, int chunk) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (static_cast<uint64_t>(chunk >> 4) << 16) |
         ((address(tile) & 0x3ffff) >> 4);
}

// d += a b, d [64][128]. Thread t has rows 16 (t / 32) + t % 32 / 4 and 8 more, of each 8 columns 2 (t % 4) and the
// next: d[4 j + e] is row + 8 (e / 2), column 8 j + 2 (t % 4) + e % 2.
template <int kTransB>
__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
#define STRATA_D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define STRATA_D16(i) STRATA_D(i), STRATA_D(i + 4), STRATA_D(i + 8), STRATA_D(i + 12)
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, "
      "%67;\n}"
      : STRATA_D16(0), STRATA_D16(16), STRATA_D16(32), STRATA_D16(48)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransB)
      : "memory");
#undef STRATA_D16
#undef STRATA_D
}
__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void pin(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ float sigmoid(float v) {
  return __fdividef(1.0f, 1.0f + __expf(-v));
}
// gelu(x) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gelu(float x) {
  return x * sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
}
__device__ __forceinline__ float gelu_slope(float x) {
  const float s = sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
  return s + x * s * (1.0f - s) * (1.5957691216f + 0.2140644488f * x * x);
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float low_of(uint32_t v) {
  return __uint_as_float(v << 16);
}
__device__ __forceinline__ float high_of(uint32_t v) {
  return __uint_as_float(v & 0xffff0000u);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <Kind kKind>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kBlock, 1)
    gelu_gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_c, const __grid_constant__ CUtensorMap map_aux, Job job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGrad = kKind == Kind::gelu_grad;
  extern __shared__ uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  const int group = static_cast<int>(threadIdx.x) / 128, t = static_cast<int>(threadIdx.x) % 128;
  const int rank = static_cast<int>(blockIdx.x) % 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(&s.full[i], 1);
      init_barrier(&s.empty[i], 2 * 4);  // the warps of a warpgroup in each block
    }
    init_barrier(&s.aux[0], 1);
    init_barrier(&s.aux[1], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();
  const int clusters = static_cast<int>(gridDim.x) / 2, first = static_cast<int>(blockIdx.x) / 2;
  const int tiles = job.tiles_m / 2 * job.tiles_n;

  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t == 0) {
      int stage = 0;
      uint32_t parity = 1;
      for (int tile = first; tile < tiles; tile += clusters) {
        const int m0 = (tile / job.tiles_n * 2 + rank) * kTile, n0 = tile % job.tiles_n * kTile;
        for (int k = 0; k < job.depth; ++k) {
          wait(&s.empty[stage], parity);
          expect(&s.full[stage], kStageBytes);
          copy_in(s.a[stage], map_a, &s.full[stage], k * kDepth, m0);
          uint8_t* const half = s.b[stage] + rank * (kChunk / 2);
          if (kGrad) {
            copy_to_both(half, map_b, &s.full[stage], n0 + rank * 64, k * kDepth);
          } else {
            copy_to_both(half, map_b, &s.full[stage], k * kDepth, n0 + rank * 64);
          }
          if (++stage == kStages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int w = group - 1, warp = t / 32, lane = t % 32;
    int stage = w * job.depth % kStages;
    uint32_t parity = (w * job.depth / kStages) & 1;
    uint32_t aux_parity = 0;
    if (w == 1) give_turn(0);
    for (int tile = first + w * clusters; tile < tiles; tile += 2 * clusters) {
      const int m0 = (tile / job.tiles_n * 2 + rank) * kTile, n0 = tile % job.tiles_n * kTile;
      if (kGrad && t == 0) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        expect(&s.aux[w], 2 * kChunk);
        copy_in(s.out[w][0], map_aux, &s.aux[w], n0, m0);
        copy_in(s.out[w][1], map_aux, &s.aux[w], n0 + 64, m0);
      }
      float d[2][64];
      int last = 0;
      wait_turn(w);
      for (int k = 0; k < job.depth; ++k) {
        wait(&s.full[stage], parity);
        const uint64_t a = descriptor(s.a[stage], 16), b = descriptor(s.b[stage], kGrad ? kChunk / 2 : 16);
        pin(d[0]);
        pin(d[1]);
        fence_products();
#pragma unroll
        for (int step = 0; step < kDepth / 16; ++step) {
          const uint64_t bs = b + static_cast<uint64_t>((kGrad ? 2048 : 32) / 16 * step);
          const uint64_t as = a + static_cast<uint64_t>(32 / 16 * step);
          multiply<kGrad>(d[0], as, bs, k > 0 || step > 0);
          multiply<kGrad>(d[1], as + kChunk / 2 / 16, bs, k > 0 || step > 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (k > 0) {
          wait_products<1>();
          if (lane < 2) arrive_at(&s.empty[last], lane);
        }
        last = stage;
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
      if (tile + clusters < tiles) give_turn(1 - w);
      wait_products<0>();
      pin(d[0]);
      pin(d[1]);
      if (lane < 2) arrive_at(&s.empty[last], lane);
      // The other warpgroup's stages come next.
      for (int k = 0; k < job.depth; ++k)
        if (++stage == kStages) stage = 0, parity ^= 1;

      const int row = 16 * warp + lane / 4;  // in 64 rows
      const auto place = [&](int h, int j, int e) {  // of the pair at rows 64 h + row + 8 e, columns 8 j + 2 (lane % 4)
        const int r = 64 * h + row + 8 * e;
        return r * 128 + (((j & 7) ^ (r & 7)) << 4) + (lane & 3) * 4;
      };
      if constexpr (kGrad) {
        wait(&s.aux[w], aux_parity);
        aux_parity ^= 1;
        sync_group(1 + w);  // the last tile's sums are read
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          float low = 0, high = 0;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              auto* at = reinterpret_cast<uint32_t*>(s.out[w][j / 8] + place(h, j, e));
              const uint32_t x = *at;
              const float v0 = d[h][4 * j + 2 * e] * gelu_slope(low_of(x)),
                          v1 = d[h][4 * j + 2 * e + 1] * gelu_slope(high_of(x));
              *at = pack(v0, v1);
              low += v0, high += v1;
            }
          }
#pragma unroll
          for (int o = 4; o < 32; o *= 2) {
            low += __shfl_xor_sync(0xffffffffu, low, o);
            high += __shfl_xor_sync(0xffffffffu, high, o);
          }
          if (lane < 4) {
            s.sums[w][warp][8 * j + 2 * lane] = low;
            s.sums[w][warp][8 * j + 2 * lane + 1] = high;
          }
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        sync_group(1 + w);
        if (t == 0) {
          copy_out(map_c, s.out[w][0], n0, m0);
          copy_out(map_c, s.out[w][1], n0 + 64, m0);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        if (job.sums != nullptr && n0 + t < job.n)
          job.sums[static_cast<int64_t>(m0 / kTile) * job.n + n0 + t] =
              (s.sums[w][0][t] + s.sums[w][1][t]) + (s.sums[w][2][t] + s.sums[w][3][t]);
      } else {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
          sync_group(1 + w);
#pragma unroll
          for (int j = 8 * c; j < 8 * c + 8; ++j) {
            uint32_t add = 0;
            const int column = n0 + 8 * j + 2 * (lane & 3);
            if (job.bias != nullptr && column < job.n) add = *reinterpret_cast<const uint32_t*>(job.bias + column);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const float v0 = d[h][4 * j + 2 * e] + low_of(add), v1 = d[h][4 * j + 2 * e + 1] + high_of(add);
                const int at = place(h, j, e);
                *reinterpret_cast<uint32_t*>(s.out[w][0] + at) = pack(v0, v1);
                *reinterpret_cast<uint32_t*>(s.out[w][1] + at) = pack(gelu(v0), gelu(v1));
              }
            }
          }
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          sync_group(1 + w);
          if (t == 0) {
            copy_out(map_aux, s.out[w][0], n0 + 64 * c, m0);
            copy_out(map_c, s.out[w][1], n0 + 64 * c, m0);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
          }
        }
      }
    }
    if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  sync_cluster();  // neither block ends while the other may copy to it or arrive at its barriers
#endif
}

}  // namespace strata::cuda::gelu_tiles
