#pragma once
// A decoder's step of generation for one text, all layers in one launch. Its time is that of the weights' bytes, so
// these never stop: each warp has its own rows of every matrix and a ring in shared memory, into which the copy engine
// brings them in the order in which they will be read, through all phases and layers. The blocks, one on each
// multiprocessor, meet between phases in a counter; while they do, and while a phase's small inputs are read, the rings
// fill with what the next phases want.
//
// Phases of a layer: norm and q, k, v; rotation, the cache, attention by stretches of positions; their sums (where
// there are several stretches); output; norm, gate and up; down. Every block makes the norms itself. Sums are in f32 in
// an order that depends on nothing but sizes.
//
// A warp has two rows at a time, whose products are by tensor cores: a lane holds the same columns of both rows, as
// operand a, and of x, as operand b. So entries (i, i) and (i + 8, i) of a b are the two rows' products over the
// columns that lanes 4 i .. 4 i + 3 hold, and the other entries are not looked at.

#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/decoder/decoder_kernel.h"
#include "strata/ops/lowbit/lowbit_tiles.cuh"

namespace strata::decoder {

namespace tile = cuda::tile;

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

__device__ __forceinline__ float exp2_of(float x) {
  return tile::fast_exp2(x);
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

// Two numbers of e4m3, the low or the high two of a word, as f16.
__device__ __forceinline__ uint32_t halves_of(uint32_t word, bool high) {
  const auto two = static_cast<uint16_t>(high ? word >> 16 : word);
#if !defined(STRATA_TILE_EMULATION) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
  return halves;
#else
  return tile::pack2<Half>(fp8_value(static_cast<uint8_t>(two), kE4m3),
                           fp8_value(static_cast<uint8_t>(two >> 8), kE4m3));
#endif
}

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
// (word & mask) | base
__device__ __forceinline__ uint32_t codes_on(uint32_t word, uint32_t mask, uint32_t base) {
#ifdef STRATA_TILE_EMULATION
  return (word & mask) | base;
#else
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(word), "r"(mask), "r"(base));
  return r;
#endif
}
// The numbers of word i of a unit of 32 columns: columns 4 i and 4 i + 2, 4 i + 1 and 4 i + 3, and the same 16 further.
__device__ __forceinline__ void numbers_of(uint32_t word, const FourBits& zero, uint32_t (&v)[4]) {
  constexpr uint32_t kBase = 0x64006400u, kSixteenth = 0x2c002c00u;
  const uint32_t odd = word >> 8;
  v[0] = cuda::lowbit_tiles::minus<Half>(codes_on(word, 0x000f000fu, kBase), zero.low);
  v[1] = cuda::lowbit_tiles::minus<Half>(codes_on(odd, 0x000f000fu, kBase), zero.low);
  v[2] = multiply_add(codes_on(word, 0x00f000f0u, kBase), kSixteenth, zero.high);
  v[3] = multiply_add(codes_on(odd, 0x00f000f0u, kBase), kSixteenth, zero.high);
}

// The matrices in the order of the phases.
enum Place { kQkv, kOut, kGateUp, kDown };

// The pieces of a warp, one after another: which matrix's, of which two rows, which bytes.
struct Cursor {
  int layer = 0, matrix = 0, unit = 0, piece = 0;
};

template <Numbering kKind, int kHeadSize>
struct Step {
  static constexpr int kLaneDims = kHeadSize / 32;

  // Query heads of a key's head come in groups, positions in stretches.
  struct Item {
    int kv, group, split;
    int64_t begin, end;
  };

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
  unsigned met = 0;
  int64_t place = 0;              // this token's
  bool runs = true;               // it is written into the cache
  int splits = 1;                 // stretches of positions
  Item own;                       // this block's first, where there is one
  float stretch = 1, shrink = 1;  // of x

  __device__ Step(const Walk& w, const Room& room, uint8_t* memory, int blocks, int block, int thread)
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
  __device__ int columns(int matrix) const {
    return matrix == kOut ? w.heads * kHeadSize : matrix == kDown ? w.width : w.dim;
  }
  __device__ int first_unit() const { return warp * blocks + block; }
  __device__ int unit_step() const { return kWarps * blocks; }

  // ---- the ring ----

  __device__ void begin() {
    if (lane == 0)
      for (int i = 0; i < room.slots; ++i) tile::init_barrier(full + i, 1);
    tile::fence_barriers();
    __syncwarp();
    place = *w.place;
    runs = w.running == nullptr || *w.running > 0;
    const int64_t most = max(1, min(kMostSplits, blocks / (w.kv_heads * groups())));
    splits = static_cast<int>(min(most, (place + kSplitPlaces) / kSplitPlaces));
    own = item_of(block);
    fetch_items(w.layers[0]);
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
          const uint32_t a[4] = {halves_of(words[0][i], false), halves_of(words[1][i], false),
                                 halves_of(words[0][i], true), halves_of(words[1][i], true)};
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

  // ---- phases ----

  // All blocks are here, and see what any has written.
  __device__ void meet() {
    __syncthreads();
    if (thread == 0) {
      tile::count_arrival(w.arrivals);
      met += static_cast<unsigned>(blocks);
      tile::wait_arrivals(w.arrivals, met);
    }
    __syncthreads();
  }

  __device__ float4 stream_at(int layer, int i) const {  // four of the residual stream
    if (layer > 0) {
      const uint4 v = tile::load_written(w.stream + i);
      return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
    }
    const auto* const p = static_cast<const uint16_t*>(w.x) + i;
    return {float_of(p[0]), float_of(p[1]), float_of(p[2]), float_of(p[3])};
  }
  // The largest of all threads'.
  __device__ float largest(float v) {
    auto* const all = reinterpret_cast<float*>(memory + room.bytes - 128);
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (lane == 0) all[warp] = v;
    __syncthreads();
    v = all[0];
    for (int i = 1; i < kWarps; ++i) v = fmaxf(v, all[i]);
    return v;
  }
  // From now on x is stored times `stretch`: a power of two that makes `most` almost as large as f16's numbers are.
  __device__ void stretch_to(float most) {
    if constexpr (kHalves<kKind>) {
      const int exponent = static_cast<int>(__float_as_uint(largest(most)) >> 23) - 127;
      const int by = max(-100, min(100, 14 - exponent));
      stretch = __uint_as_float(static_cast<uint32_t>(127 + by) << 23);
      shrink = __uint_as_float(static_cast<uint32_t>(127 - by) << 23);
    }
  }
  // Four of x, rounded to bf16, from column c on; for codes of four bits in the order of numbers_of().
  __device__ void put(int c, uint32_t low, uint32_t high) {
    if constexpr (kHalves<kKind>) {
      const float2 a = tile::unpack2<BFloat16>(low), b = tile::unpack2<BFloat16>(high);
      const float2 one{a.x * stretch, a.y * stretch}, two{b.x * stretch, b.y * stretch};
      constexpr bool kTurned = kKind == Numbering::int4;
      low = tile::pack2<Half>(one.x, kTurned ? two.x : one.y);
      high = tile::pack2<Half>(kTurned ? one.y : two.x, two.y);
    }
    auto* const to = reinterpret_cast<uint32_t*>(reinterpret_cast<uint16_t*>(memory) + place_of<kKind>(c));
    to[0] = low, to[1] = high;
  }
  __device__ static float most_of(uint32_t two) {
    const float2 v = tile::unpack2<BFloat16>(two);
    return fmaxf(fabsf(v.x), fabsf(v.y));
  }

  // x = RMSNorm of the stream (arXiv:1910.07467), where `wait` after all blocks have met. `from` tells where the stream
  // is: before the first output it is x.
  __device__ void norm(const void* weight, int from, bool wait) {
    constexpr int kMost = 2;  // quads of a thread, held from before the meeting and from the sum of squares on
    auto* const sums = reinterpret_cast<float*>(memory + room.bytes - 256);
    const auto* const weights = static_cast<const uint2*>(weight);
    uint2 factors[kMost];
    float4 held[kMost];
    float sum = 0;
    const int quads = w.dim / 4;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int q = i * kThreads + thread;
      factors[i] = q < quads ? weights[q] : uint2{0, 0};
    }
    if (wait) meet();
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int q = i * kThreads + thread;
      held[i] = q < quads ? stream_at(from, 4 * q) : float4{0, 0, 0, 0};
    }
    const auto square = [](const float4& v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; };
#pragma unroll
    for (int i = 0; i < kMost; ++i) sum += square(held[i]);
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) sum += square(stream_at(from, 4 * q));
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += sums[i];
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(w.dim) + w.eps);
    const auto normed = [&](const float4& v, const uint2& factor) {
      const float2 low = tile::unpack2<BFloat16>(factor.x), high = tile::unpack2<BFloat16>(factor.y);
      return uint2{tile::pack2<BFloat16>(v.x * scale * low.x, v.y * scale * low.y),
                   tile::pack2<BFloat16>(v.z * scale * high.x, v.w * scale * high.y)};
    };
    float most = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      factors[i] = normed(held[i], factors[i]);
      most = fmaxf(most, fmaxf(most_of(factors[i].x), most_of(factors[i].y)));
    }
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) {
      const uint2 two = normed(stream_at(from, 4 * q), weights[q]);
      most = fmaxf(most, fmaxf(most_of(two.x), most_of(two.y)));
    }
    stretch_to(most);
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (i * kThreads + thread < quads) put(4 * (i * kThreads + thread), factors[i].x, factors[i].y);
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) {
      const uint2 two = normed(stream_at(from, 4 * q), weights[q]);
      put(4 * q, two.x, two.y);
    }
    __syncthreads();
  }
  // x = what blocks have written.
  __device__ void take(const uint16_t* from, int n) {
    constexpr int kMost = 4;  // pieces of a thread, held while the largest number is looked for
    uint4 v[kMost];
    float most = 0;
    const auto read = [&](int i) {
      const int c = 8 * (i * kThreads + thread);
      return c < n ? tile::load_written(from + c) : uint4{0, 0, 0, 0};
    };
    const auto look = [&](const uint4& p) {
      most = fmaxf(fmaxf(most, fmaxf(most_of(p.x), most_of(p.y))), fmaxf(most_of(p.z), most_of(p.w)));
    };
    const auto write = [&](int i, const uint4& p) {
      const int c = 8 * (i * kThreads + thread);
      if (c < n) put(c, p.x, p.y), put(c + 4, p.z, p.w);
    };
#pragma unroll
    for (int i = 0; i < kMost; ++i) v[i] = read(i);
    if constexpr (kHalves<kKind>) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) look(v[i]);
      for (int i = kMost; i * 8 * kThreads < n; ++i) look(read(i));
    }
    stretch_to(most);
#pragma unroll
    for (int i = 0; i < kMost; ++i) write(i, v[i]);
    for (int i = kMost; i * 8 * kThreads < n; ++i) write(i, read(i));
    __syncthreads();
  }

  // A branch's row is added to the stream.
  __device__ float add(int row, float v, int from) {
    v += from > 0 ? word_at(w.stream + row) : float_of(static_cast<const uint16_t*>(w.x)[row]);
    w.stream[row] = v;
    return v;
  }

  __device__ void layer(int l) {
    const Layer& p = w.layers[l];
    const Rows matrices[4] = {p.qkv, p.out, p.gate_up, p.down};
    norm(p.norm1, l, l > 0);
    for (int u = first_unit(), n = units(kQkv); u < n; u += unit_step()) {
      const Rows& r = matrices[0];
      const float2 v = product(r.row_bytes, r.zeros != nullptr);
      if (lane < 2) w.qkv[2 * u + lane] = lane == 0 ? v.x : v.y;
    }
    Held held = {};
    if (block < items()) hold(p, own, own.begin + warp, held);
    meet();
    attend(p, held);
    meet();
    if (splits > 1) {
      merge();
      meet();
    }
    take(w.attended, w.heads * kHeadSize);
    for (int u = first_unit(), n = units(kOut); u < n; u += unit_step()) {
      const Rows& r = matrices[1];
      const float2 v = product(r.row_bytes, r.zeros != nullptr);
      if (lane < 2) add(2 * u + lane, lane == 0 ? v.x : v.y, l);
    }
    norm(p.norm2, 1, true);
    if (l + 1 < w.count) fetch_items(w.layers[l + 1]);
    for (int u = first_unit(), n = units(kGateUp); u < n; u += unit_step()) {
      const Rows& r = matrices[2];
      const float2 v = product(r.row_bytes, r.zeros != nullptr);
      if (lane == 0) w.inner[u] = bits_of(v.x / (1.0f + exp2_of(-1.4426950408889634f * v.x)) * v.y);
    }
    meet();
    take(w.inner, w.width);
    for (int u = first_unit(), n = units(kDown); u < n; u += unit_step()) {
      const Rows& r = matrices[3];
      const float2 v = product(r.row_bytes, r.zeros != nullptr);
      if (lane < 2) {
        const float now = add(2 * u + lane, lane == 0 ? v.x : v.y, 1);
        if (l + 1 == w.count) static_cast<uint16_t*>(w.y)[2 * u + lane] = bits_of(now);
      }
    }
  }

  // ---- attention ----

  __device__ int groups() const {
    return (w.heads / w.kv_heads + kSharedHeads - 1) / kSharedHeads;
  }
  __device__ int items() const {
    return w.kv_heads * groups() * splits;
  }
  __device__ Item item_of(int item) const {
    const int split = item / (w.kv_heads * groups());
    const int64_t keys = place + 1, each = (keys + splits - 1) / splits, begin = split * each;
    return {item % w.kv_heads, item / w.kv_heads % groups(), split, begin, min(keys, begin + each)};
  }
  // Asks for the keys and values that this block will read, and for norms.
  __device__ void fetch_items(const Layer& p) const {
    if (thread == 0) fetch(p.norm1, 2 * w.dim), fetch(p.norm2, 2 * w.dim);
    for (int item = block + thread * blocks; item < items(); item += kThreads * blocks) {
      const Item i = item_of(item);
      const int64_t from = (i.kv * w.head_stride + i.begin * kHeadSize) * 2, bytes = (i.end - i.begin) * kHeadSize * 2;
      fetch(static_cast<const uint8_t*>(p.k) + from, bytes);
      fetch(static_cast<const uint8_t*>(p.v) + from, bytes);
    }
  }

  // Keys and values of some positions, a lane's elements in pairs.
  static constexpr int kAtOnce = 2;
  struct Held {
    uint32_t k[kAtOnce][kLaneDims / 2], v[kAtOnce][kLaneDims / 2];
  };
  __device__ void hold(const Layer& p, const Item& item, int64_t at, Held& held) const {
    const int64_t head = item.kv * w.head_stride + lane * kLaneDims;
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
      const int64_t row = head + min(at + t * kWarps, item.end - 1) * kHeadSize;
#pragma unroll
      for (int d = 0; d < kLaneDims / 2; ++d) {
        held.k[t][d] = pair_at(static_cast<const uint16_t*>(p.k) + row + 2 * d);
        held.v[t][d] = pair_at(static_cast<const uint16_t*>(p.v) + row + 2 * d);
      }
    }
  }

  __device__ float turned(const float* head, int d) const {
    constexpr int kHalf = kHeadSize / 2;
    const int pair = d % kHalf;
    const float c = w.cos[pair], s = w.sin[pair];
    const float a = word_at(head + pair), b = word_at(head + pair + kHalf);
    return d < kHalf ? a * c - b * s : b * c + a * s;
  }

  // `held`: of this block's first item, the positions that each warp begins with.
  __device__ void attend(const Layer& p, Held held) {
    const int shared = w.heads / w.kv_heads;
    float* const q = reinterpret_cast<float*>(memory);  // [kSharedHeads][kHeadSize]
    float* const found = q + kSharedHeads * kHeadSize;  // [kWarps / 2][kSharedHeads][kHeadSize + 4]
    constexpr int kFound = kHeadSize + 4;
    const float scale = 1.4426950408889634f / sqrtf(static_cast<float>(kHeadSize));
    for (int item = block; item < items(); item += blocks) {
      const Item at_work = item == block ? own : item_of(item);
      const auto [kv, group, split, begin, end] = at_work;
      const int first = kv * shared + group * kSharedHeads, heads = min(kSharedHeads, shared - group * kSharedHeads);
      auto* const k = static_cast<uint16_t*>(p.k) + kv * w.head_stride;
      auto* const v = static_cast<uint16_t*>(p.v) + kv * w.head_stride;
      for (int i = thread; i < kSharedHeads * kHeadSize; i += kThreads)
        q[i] =
            i / kHeadSize < heads ? scale * turned(w.qkv + (first + i / kHeadSize) * kHeadSize, i % kHeadSize) : 0.0f;
      if (begin <= place && place < end && runs) {
        const float* const from = w.qkv + (w.heads + kv) * kHeadSize;
        for (int d = thread; d < kHeadSize; d += kThreads) {
          k[place * kHeadSize + d] = bits_of(turned(from, d));
          v[place * kHeadSize + d] = bits_of(word_at(from + w.kv_heads * kHeadSize + d));
        }
      }
      __syncthreads();
      // What was held from before may have this token's place in it, which has been written since.
      if (item != block || (begin + warp <= place && place <= begin + warp + (kAtOnce - 1) * kWarps))
        hold(p, at_work, begin + warp, held);
      float mine[kSharedHeads][kLaneDims], sums[kSharedHeads][kLaneDims] = {}, top[kSharedHeads],
                                           weight[kSharedHeads] = {};
#pragma unroll
      for (int h = 0; h < kSharedHeads; ++h) {
        top[h] = -1e30f;
#pragma unroll
        for (int d = 0; d < kLaneDims; ++d) mine[h][d] = q[h * kHeadSize + lane * kLaneDims + d];
      }
      for (int64_t at = begin + warp; at < end; at += kAtOnce * kWarps) {
        float keys_of[kAtOnce][kLaneDims], values[kAtOnce][kLaneDims];
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
          for (int d = 0; d < kLaneDims; d += 2) {
            const float2 a = tile::unpack2<BFloat16>(held.k[t][d / 2]), b = tile::unpack2<BFloat16>(held.v[t][d / 2]);
            keys_of[t][d] = a.x, keys_of[t][d + 1] = a.y, values[t][d] = b.x, values[t][d + 1] = b.y;
          }
        }
        if (at + kAtOnce * kWarps < end) hold(p, at_work, at + kAtOnce * kWarps, held);
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          float score[kAtOnce], high = top[h];
#pragma unroll
          for (int t = 0; t < kAtOnce; ++t) {
            float s = 0;
#pragma unroll
            for (int d = 0; d < kLaneDims; ++d) s += mine[h][d] * keys_of[t][d];
            s = warp_sum(s);
            score[t] = at + t * kWarps < end ? s : -1e30f;
            high = fmaxf(high, score[t]);
          }
          const float shrink = exp2_of(top[h] - high);
          top[h] = high;
          weight[h] *= shrink;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) sums[h][d] *= shrink;
#pragma unroll
          for (int t = 0; t < kAtOnce; ++t) {
            const float e = score[t] > -1e29f ? exp2_of(score[t] - high) : 0.0f;
            weight[h] += e;
#pragma unroll
            for (int d = 0; d < kLaneDims; ++d) sums[h][d] += e * values[t][d];
          }
        }
      }
      // The second half of the warps hand theirs to the first.
      constexpr int kHalf = kWarps / 2;
      const auto hand = [&](int of) {
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          float* const to = found + (of * kSharedHeads + h) * kFound;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) to[lane * kLaneDims + d] = sums[h][d];
          if (lane == 0) to[kHeadSize] = top[h], to[kHeadSize + 1] = weight[h];
        }
      };
      if (warp >= kHalf) hand(warp - kHalf);
      __syncthreads();
      if (warp < kHalf) {
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          const float* const one = found + (warp * kSharedHeads + h) * kFound;
          const float high = fmaxf(top[h], one[kHeadSize]), mine = exp2_of(top[h] - high),
                      other = exp2_of(one[kHeadSize] - high);
          top[h] = high, weight[h] = weight[h] * mine + one[kHeadSize + 1] * other;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) sums[h][d] = sums[h][d] * mine + one[lane * kLaneDims + d] * other;
        }
        __syncwarp();
        hand(warp);
      }
      __syncthreads();
      for (int i = thread; i < heads * kHeadSize; i += kThreads) {
        const int h = i / kHeadSize, d = i % kHeadSize;
        float high = -1e30f, all = 0, total = 0;
        for (int o = 0; o < kHalf; ++o) high = fmaxf(high, found[(o * kSharedHeads + h) * kFound + kHeadSize]);
        for (int o = 0; o < kHalf; ++o) {
          const float* const one = found + (o * kSharedHeads + h) * kFound;
          const float share = exp2_of(one[kHeadSize] - high);
          all += share * one[d], total += share * one[kHeadSize + 1];
        }
        if (splits == 1) {
          w.attended[(first + h) * kHeadSize + d] = bits_of(all / total);
        } else {
          float* const to = w.parts + (static_cast<int64_t>(first + h) * kMostSplits + split) * kFound;
          to[d] = all;
          if (d == 0) to[kHeadSize] = high, to[kHeadSize + 1] = total;
        }
      }
      __syncthreads();
    }
  }

  // The stretches' sums.
  __device__ void merge() {
    constexpr int kFound = kHeadSize + 4;
    for (int i = block * kThreads + thread; i < w.heads * kHeadSize; i += blocks * kThreads) {
      const int h = i / kHeadSize, d = i % kHeadSize;
      const float* const parts = w.parts + static_cast<int64_t>(h) * kMostSplits * kFound;
      // All are on their way before the first is looked at.
      float own_top[kMostSplits], own_weight[kMostSplits], own_sum[kMostSplits];
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) {
        const float* const one = parts + s * kFound;
        own_top[s] = s < splits ? word_at(one + kHeadSize) : -1e30f;
        own_weight[s] = s < splits ? word_at(one + kHeadSize + 1) : 0.0f;
        own_sum[s] = s < splits ? word_at(one + d) : 0.0f;
      }
      float high = -1e30f, all = 0, total = 0;
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) high = fmaxf(high, own_top[s]);
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) {
        const float share = exp2_of(own_top[s] - high);
        all += share * own_sum[s], total += share * own_weight[s];
      }
      w.attended[i] = bits_of(all / total);
    }
  }
};

/// What a block does.
template <Numbering kKind, int kHeadSize>
__device__ __forceinline__ void walk_block(const Walk& w, const Room& room) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  Step<kKind, kHeadSize> step(w, room, tile::shared_memory(), static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x),
                              static_cast<int>(threadIdx.x));
  step.begin();
  for (int l = 0; l < w.count; ++l) step.layer(l);
#endif
}

}  // namespace strata::decoder
