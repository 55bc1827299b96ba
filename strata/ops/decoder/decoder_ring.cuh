#pragma once
// The rings of a decoder's step (decoder_walk.cuh), and the products of what comes through them.
//
// A warp has two rows at a time, whose products are by tensor cores: a lane holds the same columns of both rows, as
// operand a, and of x, as operand b. So entries (i, i) and (i + 8, i) of a b are the two rows' products over the
// columns that lanes 4 i .. 4 i + 3 hold, and the other entries are not looked at.

#include <cstring>

#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/decoder/decoder_kernel.h"
#include "strata/ops/lowbit/lowbit_tiles.cuh"

namespace strata::decoder {

namespace tile = cuda::tile;
using cuda::lowbit_tiles::codes_on;
using cuda::lowbit_tiles::halves_of;

/// How the numbers of a matrix lie.
enum class Numbering { bf16, e4m3, int4 };

template <Numbering kKind>
inline constexpr int kColumns = kKind == Numbering::int4   ? 32
                                : kKind == Numbering::e4m3 ? 16
                                                           : 8;  // in 16 bytes

// Where column c of x lies in shared memory, in elements: lane l of step j has its kColumns as pieces of 16 bytes, a
// warp's side by side.
template <Numbering kKind>
__device__ __forceinline__ int place_of(int c) {
  constexpr int kOwn = kColumns<kKind>, kPieces = kOwn / 8;
  if constexpr (kPieces == 1) return c;
  const int lane_step = c / kOwn, own = c % kOwn;
  return ((lane_step / 32 * kPieces + own / 8) * 32 + lane_step % 32) * 8 + own % 8;
}

// What other blocks wrote during this launch.
__device__ __forceinline__ float word_at(const float* p) {
#ifdef STRATA_TILE_EMULATION
  return *p;
#else
  return __ldcg(p);
#endif
}
__device__ __forceinline__ uint16_t bits_of(float v) {
  return static_cast<uint16_t>(tile::pack2<BFloat16>(v, 0.0f));
}
__device__ __forceinline__ float float_of(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ float warp_sum(float v) {
  return cuda::warp_reduce<32>(v, cuda::Sum());
}

// Two numbers side by side, which this block may have written.
__device__ __forceinline__ uint32_t pair_at(const uint16_t* p) {
#ifdef STRATA_TILE_EMULATION
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 16;
#else
  return __ldcg(reinterpret_cast<const uint32_t*>(p));
#endif
}
// Adds 1, and gives what was there: what this block wrote is seen behind it, as is what others wrote before theirs.
__device__ __forceinline__ int add_one(int* p) {
#ifdef STRATA_TILE_EMULATION
  return atomicAdd(p, 1);
#else
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(p) : "memory");
  return before;
#endif
}
// Asks for a run of bytes (a multiple of 16) in the second cache, of what nothing writes before it is read.
__device__ __forceinline__ void fetch(const void* p, int64_t bytes) {
#ifdef STRATA_TILE_EMULATION
  if (bytes > 0) {  // whoever looks for reads outside of a matrix sees those of its ends
    const volatile auto* const all = static_cast<const volatile uint8_t*>(p);
    (void)all[0], (void)all[bytes - 1];
  }
#elif __CUDA_ARCH__ >= 900
  if (bytes > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(static_cast<uint32_t>(bytes)) : "memory");
#endif
}

// Codes become numbers of f16 by fewer instructions than of bf16, so beside them x is f16 in shared memory, times a
// power of two that makes its largest element nearly f16's largest: exact but for what is 2^-29 of that and less.
template <Numbering kKind>
inline constexpr bool kHalves = kKind != Numbering::bf16;

// The numbers of word i of a unit of 32 columns of codes of four bits: columns 4 i and 4 i + 2, 4 i + 1 and 4 i + 3,
// and the same 16 further. The first two are 1024 + code, as f16 has the code in its lowest bits then, the others 1024
// + 16 code, beside which x is a 16th. What is too much of a sum, 1024 times what lies in shared memory and the zero
// times x, is taken off it whole (GroupSums).
__device__ __forceinline__ void numbers_of(uint32_t word, uint32_t (&v)[4]) {
  constexpr uint32_t kBase = 0x64006400u, kHigh = 0x00f000f0u;
  const uint32_t odd = word >> 8;
  v[0] = codes_on(word, kBase), v[1] = codes_on(odd, kBase);
  v[2] = codes_on<kHigh>(word, kBase), v[3] = codes_on<kHigh>(odd, kBase);
}
// Of 128 columns of x beside codes of four bits: 1024 times the sum of what lies in shared memory, and the sum of x.
struct GroupSums {
  float base, x;
};

// Copies 16 bytes, where `valid`, and arrives at the barrier once this thread's such copies are there.
__device__ __forceinline__ void bring(void* to, const void* from, bool valid, uint64_t* barrier) {
#ifdef STRATA_TILE_EMULATION
  if (valid) std::memcpy(to, from, 16);
  tile::arrive(barrier);
#elif __CUDA_ARCH__ >= 900
  if (valid) tile::copy_async(to, from);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(tile::shared_address(barrier)) : "memory");
#endif
}

// The matrices in the order of the phases.
enum Place { kQkv, kOut, kGateUp, kDown };

// The pieces of a warp, one after another: which matrix's, of which two rows, which bytes.
struct Cursor {
  int layer = 0, matrix = 0, unit = 0, piece = 0;
};

/// A warp's part of a step: its ring, and the products of its rows with x in shared memory.
template <Numbering kKind, int kHeadSize>
struct Ring {
  const Walk& w;
  const Room& room;
  uint8_t* const memory;
  const int thread, lane, warp, block, blocks;
  uint64_t* const full;  // a warp's slots
  uint8_t* const ring;
  Cursor ahead;  // what is asked for next
  Rows source;   // of its matrix
  int slot_in = 0, slot_out = 0;
  uint32_t parity = 0;
  float stretch = 1, shrink = 1;  // of x

  __device__ Ring(const Walk& w, const Room& room, uint8_t* memory, int blocks, int block, int thread)
      : w(w),
        room(room),
        memory(memory),
        thread(thread),
        lane(thread % 32),
        warp(thread / 32),
        block(block),
        blocks(blocks),
        full(reinterpret_cast<uint64_t*>(memory + room.x_bytes + kWarps * room.slots * room.slot_bytes) +
             thread / 32 * room.slots),
        ring(memory + room.x_bytes + thread / 32 * room.slots * room.slot_bytes) {}

  __device__ const Rows& rows_of(int layer, int matrix) const {
    const Layer& l = w.layers[layer];
    return matrix == kQkv ? l.qkv : matrix == kOut ? l.out : matrix == kGateUp ? l.gate_up : l.down;
  }
  // Pairs of rows: of gate and up one of each, else neighbours.
  __device__ int units(int matrix) const {
    return matrix == kGateUp ? w.width : (matrix == kQkv ? (w.heads + 2 * w.kv_heads) * kHeadSize : w.dim) / 2;
  }
  __device__ int first_unit() const { return warp * blocks + block; }
  __device__ int unit_step() const { return kWarps * blocks; }

  // ---- the ring ----

  __device__ void begin() {
    if (lane == 0)
      // Whoever asks arrives with the number of bytes; each lane when the scales and zeros that it asked for are there.
      for (int i = 0; i < room.slots; ++i) tile::init_barrier(full + i, kKind == Numbering::bf16 ? 1 : 33);
    tile::fence_barriers();
    __syncwarp();
    ahead.unit = first_unit();
    source = rows_of(0, 0);
    skip();
    for (int i = 0; i < room.slots; ++i) ask();
  }
  // To a matrix of which this warp has rows.
  __device__ void skip() {
    while (ahead.layer < w.count && ahead.unit >= units(ahead.matrix)) {
      ahead.unit = first_unit();
      if (++ahead.matrix == 4) ahead.matrix = 0, ++ahead.layer;
      if (ahead.layer < w.count) source = rows_of(ahead.layer, ahead.matrix);
    }
  }
  // Asks for the next piece.
  __device__ void ask() {
    if (ahead.layer >= w.count) return;
    const int begin = ahead.piece * kPieceBytes, left = source.row_bytes - begin;
    const int bytes = left < kPieceBytes ? left : kPieceBytes;
    const bool both = ahead.matrix == kGateUp;
    uint8_t* const to = ring + slot_in * room.slot_bytes;
    uint64_t* const b = full + slot_in;
    const auto row_of = [&](int i) { return both ? ahead.unit + i * w.width : 2 * ahead.unit + i; };
    if constexpr (kKind != Numbering::bf16) {
      // Half a warp has a row: eight lanes its scales, two its zeros.
      const int i = lane / 16, part = lane % 16, count = blocks_in(bytes);
      const int first = begin / 16 * kColumns<kKind> >> w.block_shift;
      const int64_t at = row_of(i) >> source.row_shift;
      const bool of_zeros = part >= 8;
      const int own = 16 * (of_zeros ? part - 8 : part);
      const uint8_t* const from = of_zeros ? source.zeros + at * source.zero_bytes + first
                                           : source.scales + at * source.scale_bytes + first * w.scale_size;
      const bool valid = of_zeros ? source.zeros != nullptr && own < count : own < count * w.scale_size;
      bring(to + 2 * kPieceBytes + (of_zeros ? 2 * kScalesAt + i * kZerosAt : i * kScalesAt) + own, from + own, valid,
            b);
    }
    if (lane == 0) {
      tile::arrive_expecting(b, static_cast<uint32_t>(2 * bytes));
#pragma unroll
      for (int i = 0; i < 2; ++i)
        tile::copy_bytes_in(to + i * kPieceBytes,
                            source.codes + static_cast<int64_t>(row_of(i)) * source.row_bytes + begin, b, bytes);
    }
    slot_in = slot_in + 1 == room.slots ? 0 : slot_in + 1;
    if (left > kPieceBytes) {
      ++ahead.piece;
      return;
    }
    ahead.piece = 0;
    ahead.unit += unit_step();
    skip();
  }
  // Blocks of columns of so many bytes of codes.
  __device__ int blocks_in(int bytes) const {
    return bytes / 16 * kColumns<kKind> >> w.block_shift;
  }

  // ---- products ----

  // A lane has 16 bytes of codes of both rows.
  struct Codes {
    uint4 of[2];
  };
  __device__ __forceinline__ Codes codes_at(const uint8_t* slot, int at) const {
    const auto* const p = reinterpret_cast<const uint4*>(slot + at + lane * 16);
    return {{p[0], p[kPieceBytes / 16]}};
  }
  // The scale of each row's block number `lane` of a piece, and that times its zero.
  struct Scales {
    float scale[2] = {1, 1}, zero[2] = {};
  };
  __device__ __forceinline__ Scales scales_of(const uint8_t* slot, bool zeros) const {
    Scales s;
    if constexpr (kKind != Numbering::bf16) {
      const bool wide = w.scale_size == 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint8_t* const scales = slot + 2 * kPieceBytes + i * kScalesAt;
        const uint32_t word = *reinterpret_cast<const uint32_t*>(scales + (wide ? 4 * lane : lane / 2 * 4));
        const uint32_t half = lane % 2 != 0 ? word >> 16 : word & 0xffffu;
        const float narrow = w.scale_half ? tile::unpack2<Half>(half).x : __uint_as_float(half << 16);
        s.scale[i] = wide ? __uint_as_float(word) : narrow;
        if constexpr (kKind == Numbering::int4)
          s.zero[i] = s.scale[i] *
                      (zeros ? static_cast<float>(slot[2 * (kPieceBytes + kScalesAt) + i * kZerosAt + lane]) : 8.0f);
      }
    }
    return s;
  }
  static constexpr int kTogether = kKind == Numbering::bf16 ? 4 : 2;  // steps whose codes are read together
  static constexpr int kChains = 4;                                   // sums that do not wait for each other
  // Adds the lane's columns of step `step` of x times both rows' to sums[chain], or to `sum` where they have scales:
  // those of block `block` of the piece, which the four lanes of an entry have in common. Nothing where not `there`.
  __device__ __forceinline__ void multiply(const Codes& c, const Scales& scales, int step, int block, bool there,
                                           int chain, float (&sums)[kChains][4], float2& sum, bool odd) const {
    constexpr int kPieces = kColumns<kKind> / 8;
    const uint4* const x = reinterpret_cast<const uint4*>(memory) + step * kPieces * 32 + lane;
    const uint4 one = c.of[0], two = c.of[1];
    if constexpr (kKind == Numbering::bf16) {
      const uint4 v = x[0];
      const uint32_t a[4] = {one.x, two.x, one.y, two.y}, b[4] = {one.z, two.z, one.w, two.w};
      tile::mma<BFloat16>(sums[chain], a, v.x, v.y);
      tile::mma<BFloat16>(sums[chain], b, v.z, v.w);
    } else {
      const uint32_t words[2][4] = {{one.x, one.y, one.z, one.w}, {two.x, two.y, two.z, two.w}};
      float d[2][4] = {}, scale[2], less[2] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) scale[i] = __shfl_sync(0xffffffffu, scales.scale[i], block);
      if constexpr (kKind == Numbering::int4) {
        const uint4 v[4] = {x[0], x[32], x[64], x[96]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t n[2][4];
          numbers_of(words[0][i], n[0]);
          numbers_of(words[1][i], n[1]);
          const uint4 low = v[i / 2], high = v[2 + i / 2];
          const uint32_t a[4] = {n[0][0], n[1][0], n[0][1], n[1][1]}, b[4] = {n[0][2], n[1][2], n[0][3], n[1][3]};
          tile::mma<Half>(d[0], a, i % 2 ? low.z : low.x, i % 2 ? low.w : low.y);
          tile::mma<Half>(d[1], b, i % 2 ? high.z : high.x, i % 2 ? high.w : high.y);
        }
        const GroupSums group = group_sums()[step * 8 + lane / 4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          less[i] = scale[i] * group.base + __shfl_sync(0xffffffffu, scales.zero[i], block) * group.x;
      } else {
        const uint4 v[2] = {x[0], x[32]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t a[4] = {halves_of(words[0][i]), halves_of(words[1][i]), halves_of(words[0][i] >> 16),
                                 halves_of(words[1][i] >> 16)};
          tile::mma<Half>(d[i % 2], a, i % 2 ? v[i / 2].z : v[i / 2].x, i % 2 ? v[i / 2].w : v[i / 2].y);
        }
      }
      const float first = scale[0] * (odd ? d[0][1] + d[1][1] : d[0][0] + d[1][0]) - less[0];
      const float second = scale[1] * (odd ? d[0][3] + d[1][3] : d[0][2] + d[1][2]) - less[1];
      sum.x += there ? first : 0.0f, sum.y += there ? second : 0.0f;
    }
  }
  // Of x as it lies in shared memory, for each 128 of its columns.
  __device__ __forceinline__ GroupSums* group_sums() const {
    return reinterpret_cast<GroupSums*>(memory + room.sums_at);
  }

  // The next two rows of this warp times x, in every lane.
  __device__ float2 product(int row_bytes, bool zeros) {
    float2 sum{0, 0};
    float sums[kChains][4] = {};
    const bool odd = (lane / 4) % 2 != 0, own = lane % 4 == lane / 8;  // whose entry lies on the diagonal
    for (int begin = 0; begin < row_bytes; begin += kPieceBytes) {
      const int left = row_bytes - begin, bytes = left < kPieceBytes ? left : kPieceBytes;
      tile::wait(full + slot_out, parity);
      const uint8_t* const slot = ring + slot_out * room.slot_bytes;
      constexpr int kStep = 512;
      const Scales scales = scales_of(slot, zeros);
      const auto block_at = [&](int at) { return (at / 16 + lane) * kColumns<kKind> >> w.block_shift; };
      int at = 0;
      for (; at + kTogether * kStep <= bytes; at += kTogether * kStep) {
        Codes c[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) c[i] = codes_at(slot, at + i * kStep);
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          multiply(c[i], scales, (begin + at) / kStep + i, block_at(at + i * kStep), true, i % kChains, sums, sum, odd);
      }
      for (; at < bytes; at += kStep) {
        Codes c = {};
        const bool there = at + lane * 16 < bytes;  // else zero times numbers that are there
        if (there) c = codes_at(slot, at);
        multiply(c, scales, there ? (begin + at) / kStep : 0, there ? block_at(at) : 0, there, 0, sums, sum, odd);
      }
      __syncwarp();
      slot_out = slot_out + 1 == room.slots ? 0 : slot_out + 1;
      if (slot_out == 0) parity ^= 1;
      ask();
    }
    if constexpr (kKind == Numbering::bf16) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) sum.x += odd ? sums[i][1] : sums[i][0], sum.y += odd ? sums[i][3] : sums[i][2];
    }
    if constexpr (kHalves<kKind>) sum.x *= shrink, sum.y *= shrink;
    return {warp_sum(own ? sum.x : 0.0f), warp_sum(own ? sum.y : 0.0f)};
  }
};

}  // namespace strata::decoder
