#pragma once
// The rings of a decoder's step (decoder_walk.cuh), and the products of what comes through them.
//
// A warp has two rows at a time, whose products are by tensor cores: a lane holds the same columns of both rows, as
// operand a, and of x, as operand b. So entries (i, i) and (i + 8, i) of a b are the two rows' products over the
// columns that lanes 4 i .. 4 i + 3 hold, and the other entries are not looked at.

#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/decoder/decoder_kernel.h"
#include "strata/ops/lowbit/lowbit_tiles.cuh"

namespace strata::decoder {

namespace tile = cuda::tile;
using cuda::lowbit_tiles::codes_on;
using cuda::lowbit_tiles::halves_of;
using cuda::lowbit_tiles::minus;

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
// Asks for a run of bytes (a multiple of 16) in the second cache, of what nothing writes before it is read.
__device__ __forceinline__ void fetch(const void* p, int64_t bytes) {
#if !defined(STRATA_TILE_EMULATION) && __CUDA_ARCH__ >= 900
  if (bytes > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(static_cast<uint32_t>(bytes)) : "memory");
#endif
}

// Codes become numbers of f16 by fewer instructions than of bf16, so beside them x is f16 in shared memory, times a
// power of two that makes its largest element nearly f16's largest: exact but for what is 2^-29 of that and less.
template <Numbering kKind>
inline constexpr bool kHalves = kKind != Numbering::bf16;

// What takes the zero off codes of four bits: 1024 + code is a number of f16 with the code in its lowest bits, and a
// 16th of 1024 + 16 code is 64 + code.
struct FourBits {
  uint32_t low, high;  // 1024 + zero; -(64 + zero), twice each
  __device__ static FourBits of(uint32_t zero) {
    const auto z = static_cast<float>(zero);
    return {tile::pack2<Half>(1024.0f + z, 1024.0f + z), tile::pack2<Half>(-64.0f - z, -64.0f - z)};
  }
};
// a c + b of two numbers of f16.
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t c, uint32_t b) {
#ifdef STRATA_TILE_EMULATION
  const float2 x = tile::unpack2<Half>(a), y = tile::unpack2<Half>(c), z = tile::unpack2<Half>(b);
  return tile::pack2<Half>(x.x * y.x + z.x, x.y * y.y + z.y);
#else
  uint32_t r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  return r;
#endif
}
// The numbers of word i of a unit of 32 columns: columns 4 i and 4 i + 2, 4 i + 1 and 4 i + 3, and the same 16 further.
__device__ __forceinline__ void numbers_of(uint32_t word, const FourBits& zero, uint32_t (&v)[4]) {
  constexpr uint32_t kBase = 0x64006400u, kSixteenth = 0x2c002c00u, kHigh = 0x00f000f0u;
  const uint32_t odd = word >> 8;
  v[0] = minus<Half>(codes_on(word, kBase), zero.low);
  v[1] = minus<Half>(codes_on(odd, kBase), zero.low);
  v[2] = multiply_add(codes_on<kHigh>(word, kBase), kSixteenth, zero.high);
  v[3] = multiply_add(codes_on<kHigh>(odd, kBase), kSixteenth, zero.high);
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
      for (int i = 0; i < room.slots; ++i) tile::init_barrier(full + i, 1);
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
    if (lane == 0) {
      const int bytes = left < kPieceBytes ? left : kPieceBytes, count = blocks_in(bytes),
                scales = count * w.scale_size;
      const bool both = ahead.matrix == kGateUp, zeros = source.zeros != nullptr;
      uint8_t* const to = ring + slot_in * room.slot_bytes;
      uint64_t* const b = full + slot_in;
      tile::arrive_expecting(
          b, static_cast<uint32_t>(2 * (kKind == Numbering::bf16 ? bytes : bytes + scales + (zeros ? count : 0))));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = both ? ahead.unit + i * w.width : 2 * ahead.unit + i;
        tile::copy_bytes_in(to + i * kPieceBytes, source.codes + static_cast<int64_t>(row) * source.row_bytes + begin,
                            b, bytes);
        if constexpr (kKind != Numbering::bf16) {
          const int first = begin / 16 * kColumns<kKind> >> w.block_shift;
          const int64_t at = row >> source.row_shift;
          tile::copy_bytes_in(to + 2 * kPieceBytes + i * kScalesAt,
                              source.scales + at * source.scale_bytes + first * w.scale_size, b, scales);
          if (zeros)
            tile::copy_bytes_in(to + 2 * (kPieceBytes + kScalesAt) + i * kZerosAt,
                                source.zeros + at * source.zero_bytes + first, b, count);
        }
      }
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

  // A lane's 16 bytes of codes, what stands for their zero, and their scale.
  struct Codes {
    uint4 codes;
    uint32_t zero;
    float scale;
  };
  __device__ __forceinline__ Codes codes_at(const uint8_t* slot, int row, int at, bool zeros) const {
    Codes c{*reinterpret_cast<const uint4*>(slot + row * kPieceBytes + at + lane * 16), 0, 1};
    if constexpr (kKind != Numbering::bf16) {
      const int block = (at / 16 + lane) * kColumns<kKind> >> w.block_shift;
      const bool wide = w.scale_size == 4;
      const uint8_t* const scales = slot + 2 * kPieceBytes + row * kScalesAt;
      const uint32_t word = *reinterpret_cast<const uint32_t*>(scales + (wide ? 4 * block : block / 2 * 4));
      const uint32_t half = block % 2 != 0 ? word >> 16 : word & 0xffffu;
      const float narrow = w.scale_half ? tile::unpack2<Half>(half).x : __uint_as_float(half << 16);
      c.scale = wide ? __uint_as_float(word) : narrow;
      if constexpr (kKind == Numbering::int4)
        c.zero = zeros ? slot[2 * (kPieceBytes + kScalesAt) + row * kZerosAt + block] : 8;
    }
    return c;
  }
  static constexpr int kTogether = kKind == Numbering::bf16 ? 4 : 2;  // steps whose codes are read together
  static constexpr int kChains = 4;                                   // sums that do not wait for each other
  // Adds the lane's columns of step `step` of both rows times x's to sums[chain], or to `sum` where they have scales.
  __device__ __forceinline__ void multiply(const Codes (&c)[2], int step, int chain, float (&sums)[kChains][4],
                                           float2& sum, bool odd) const {
    constexpr int kPieces = kColumns<kKind> / 8;
    const uint4* const x = reinterpret_cast<const uint4*>(memory) + step * kPieces * 32 + lane;
    const uint4 one = c[0].codes, two = c[1].codes;
    if constexpr (kKind == Numbering::bf16) {
      const uint4 v = x[0];
      const uint32_t a[4] = {one.x, two.x, one.y, two.y}, b[4] = {one.z, two.z, one.w, two.w};
      tile::mma<BFloat16>(sums[chain], a, v.x, v.y);
      tile::mma<BFloat16>(sums[chain], b, v.z, v.w);
    } else {
      const uint32_t words[2][4] = {{one.x, one.y, one.z, one.w}, {two.x, two.y, two.z, two.w}};
      float d[2][4] = {};
      if constexpr (kKind == Numbering::int4) {
        const uint4 v[4] = {x[0], x[32], x[64], x[96]};
        const FourBits zeros[2] = {FourBits::of(c[0].zero), FourBits::of(c[1].zero)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t n[2][4];
          numbers_of(words[0][i], zeros[0], n[0]);
          numbers_of(words[1][i], zeros[1], n[1]);
          const uint4 low = v[i / 2], high = v[2 + i / 2];
          const uint32_t a[4] = {n[0][0], n[1][0], n[0][1], n[1][1]}, b[4] = {n[0][2], n[1][2], n[0][3], n[1][3]};
          tile::mma<Half>(d[0], a, i % 2 ? low.z : low.x, i % 2 ? low.w : low.y);
          tile::mma<Half>(d[1], b, i % 2 ? high.z : high.x, i % 2 ? high.w : high.y);
        }
      } else {
        const uint4 v[2] = {x[0], x[32]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t a[4] = {halves_of(words[0][i]), halves_of(words[1][i]), halves_of(words[0][i] >> 16),
                                 halves_of(words[1][i] >> 16)};
          tile::mma<Half>(d[i % 2], a, i % 2 ? v[i / 2].z : v[i / 2].x, i % 2 ? v[i / 2].w : v[i / 2].y);
        }
      }
      // All four lanes of an entry have columns of one block.
      sum.x += c[0].scale * (odd ? d[0][1] + d[1][1] : d[0][0] + d[1][0]);
      sum.y += c[1].scale * (odd ? d[0][3] + d[1][3] : d[0][2] + d[1][2]);
    }
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
      int at = 0;
      for (; at + kTogether * kStep <= bytes; at += kTogether * kStep) {
        Codes c[kTogether][2];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          c[i][0] = codes_at(slot, 0, at + i * kStep, zeros);
          c[i][1] = codes_at(slot, 1, at + i * kStep, zeros);
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) multiply(c[i], (begin + at) / kStep + i, i % kChains, sums, sum, odd);
      }
      for (; at < bytes; at += kStep) {
        Codes c[2] = {};
        const bool there = at + lane * 16 < bytes;  // else zero times numbers that are there
        if (there) c[0] = codes_at(slot, 0, at, zeros), c[1] = codes_at(slot, 1, at, zeros);
        multiply(c, there ? (begin + at) / kStep : 0, 0, sums, sum, odd);
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
