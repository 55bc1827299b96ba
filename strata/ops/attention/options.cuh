#pragma once
// Masks, dropout and what else a call may ask for in the tensor-core kernels. All of them hold a tile of scores alike:
// a thread has two rows, 8 apart, and of each 8 columns two neighbours, s[4 j + 2 r + e] being row r's column 8 j + 2
// (lane % 4) + e. Rows are queries and columns keys, or, where scores are transposed, the other way round.
//
// A mask is first turned into bits, one for each query and key, in rows of the kernel's orientation; what no query of a
// tile sees is known from them before the tile is copied. Additive masks are read where they lie.

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/score_options.cuh"

namespace strata::attention_cuda {

/// What a call's options are to a kernel. Scores are products of queries and keys; under a soft cap they become
/// hyperbolic tangents, with an additive mask what the definition calls them.
struct Options {
  /// A bit for each query and key, in rows of the kernel's orientation: seen, or given more than -inf. Null: no mask.
  const uint32_t* seen = nullptr;
  int64_t seen_batch = 0, seen_head = 0,
          seen_row = 0;  ///< words from one to the next; 0 where the mask has one for all
  int seen_word = 1;     ///< likewise along a row
  /// For each tile of queries a bit for each tile of keys: something of it is seen.
  const uint32_t* tiles = nullptr;
  int64_t tiles_batch = 0, tiles_head = 0;
  int tiles_row = 0;
  bool additive = false;    ///< the mask is added to scores, which are scaled first
  bool pairs = false;       ///< two neighbouring keys of it can be read at once
  float cap_in = 0;         ///< scores times this are what the soft cap's tangent is taken of; 0: none
  float scale = 1;          ///< of scores before an additive mask
  float factor = 1;         ///< weights are 2 to the power of this times a score, once it is complete
  float lse_factor = 1;     ///< what a score counts in lse, a natural logarithm
  float per_lse = 1;        ///< 1 / lse_factor: what slopes and sinks are multiplied by
  uint32_t drop_below = 0;  ///< a weight whose random number is below is dropped; 0: no dropout
  float kept_scale = 1;     ///< what the others are multiplied by
  bool fours = false;       ///< keys come in whole groups of four random numbers
  /// For each head how far a score falls with distance, and one more score; null: none. As the call has them.
  const float *slopes = nullptr, *sinks = nullptr;
  int slopes_batch = 0;

  __device__ __forceinline__ const uint32_t* seen_of(int64_t b, int64_t h) const {
    return seen + b * seen_batch + h * seen_head;
  }
  __device__ __forceinline__ float slope_of(int64_t b, int64_t h) const {
    return slopes == nullptr ? 0.f : slopes[b * slopes_batch + h] * per_lse;
  }
  /// A row's maximum and sum to begin with, where there are sinks; a lane of four has the sum.
  __device__ __forceinline__ void begin_with_sink(int64_t h, float (&m)[2], float (&l)[2]) const {
    if (sinks == nullptr) return;
    const float sink = sinks[h];
    if (sink == -INFINITY) return;
    m[0] = m[1] = sink * per_lse;
    l[0] = l[1] = threadIdx.x % 4 == 0 ? 1.f : 0.f;
  }
  /// The bits of tiles of keys for tile `i` of queries.
  __device__ __forceinline__ const uint32_t* tiles_of(int64_t b, int64_t h, int64_t i) const {
    return tiles + b * tiles_batch + h * tiles_head + i * tiles_row;
  }
};

/// Makes them for kernels whose flags are of `query_tile` by `key_tile`, and whose scores are transposed or not;
/// `space` keeps their memory. One small kernel on the stream where there is a mask.
Options options_of(const AttentionCall& c, int query_tile, int key_tile, bool transposed, const Tensor& like_this,
                   Tensor& space);
/// Whether a call has any.
inline bool has_options(const AttentionCall& c) {
  return c.mask != nullptr || c.dropout > 0 || c.alibi_slopes != nullptr || c.soft_cap > 0 || c.sinks != nullptr ||
         c.key_lengths != nullptr;
}
/// What a complete score of these kernels counts in lse.
inline double score_unit(const AttentionCall& c) {
  return c.mask != nullptr && c.mask_dtype != DType::boolean ? 1 : c.soft_cap > 0 ? c.soft_cap : c.scale;
}

/// Bits [begin, end) of `words` that are set.
__device__ __forceinline__ int count_bits(const uint32_t* words, int begin, int end) {
  int n = 0;
  for (int i = begin / 32; 32 * i < end; ++i) {
    uint32_t w = words[i];
    if (32 * i < begin) w &= ~0u << (begin - 32 * i);
    if (end - 32 * i < 32) w &= ~0u >> (32 - (end - 32 * i));
    n += __popc(w);
  }
  return n;
}

/// What the mask lets a thread's part of a tile see. Bit 8 j + e of word c of row r is its column 32 c + 8 j + e.
template <int kBlocks>
struct SeenBits {
  static constexpr int kWords = (kBlocks + 3) / 4;
  uint32_t words[kWords][2];

  /// Of rows `row` (two, which exist) and the columns from `column` on.
  __device__ __forceinline__ void load(const Options& o, const uint32_t* seen, const int (&row)[2], int column) {
    const int shift = column % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t* const p = seen + row[r] * o.seen_row + column / 32 * o.seen_word;
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        const uint32_t low = p[c * o.seen_word], high = shift == 0 ? 0 : p[(c + 1) * o.seen_word];
        words[c][r] = __funnelshift_r(low, high, shift) >> (2 * (threadIdx.x % 4));
      }
    }
  }
  __device__ __forceinline__ void hide(float (&s)[4 * kBlocks]) const {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if ((words[j / 4][e / 2] >> (8 * (j % 4) + e % 2) & 1) == 0) s[4 * j + e] = -INFINITY;
  }
};

/// An additive mask's part of a tile, added to the scores, which are scaled first. It is read in pairs of 16 bits while
/// the scores are computed, or where it is needed.
template <int kBlocks>
struct Bias {
  uint32_t pairs[kBlocks][2];
  bool loaded = false;

  /// `mask` is row 0, column 0 of the head. Only where pairs can be read: rows are queries, the whole tile exists.
  __device__ __forceinline__ void load(const AttentionCall& c, const Options& o, const void* mask, const int (&row)[2],
                                       int column) {
    loaded = o.pairs && c.mask_dtype != DType::f32 && column + 8 * kBlocks <= c.tk && column % 2 == 0;
    if (!loaded) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint16_t* const p =
          static_cast<const uint16_t*>(mask) + row[r] * c.mask_stride[2] + column + 2 * (threadIdx.x % 4);
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) pairs[j][r] = __ldg(reinterpret_cast<const uint32_t*>(p + 8 * j));
    }
  }
  template <class M>
  __device__ __forceinline__ void add_loaded(float (&s)[4 * kBlocks], float scale) const {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t v = pairs[j][r];
        float2 x;
        if constexpr (std::is_same_v<M, BFloat16>) {
          x = {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
        } else {
          x = __half22float2(*reinterpret_cast<const __half2*>(&v));
        }
        s[4 * j + 2 * r] = fmaf(s[4 * j + 2 * r], scale, x.x);
        s[4 * j + 2 * r + 1] = fmaf(s[4 * j + 2 * r + 1], scale, x.y);
      }
  }
  // Reads what it adds. Columns from `end` on are given the last one's.
  template <class M>
  static __device__ __forceinline__ void add_read(float (&s)[4 * kBlocks], float scale, const M* mask, int64_t row_step,
                                                  int64_t column_step, const int (&row)[2], int column, int end) {
    const int first = column + 2 * (threadIdx.x % 4);
    const bool whole = column + 8 * kBlocks <= end;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const M* p = mask + row[r] * row_step + first * column_step;
      if (whole) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          float& x = s[4 * j + 2 * r];
          float& y = s[4 * j + 2 * r + 1];
          x = fmaf(x, scale, cuda::widen(p[0])), y = fmaf(y, scale, cuda::widen(p[column_step]));
          p += 8 * column_step;
        }
      } else {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int64_t at = min(first + 8 * j + e, end - 1);
            s[4 * j + 2 * r + e] =
                fmaf(s[4 * j + 2 * r + e], scale, cuda::widen(mask[row[r] * row_step + at * column_step]));
          }
      }
    }
  }
  __device__ __forceinline__ void add(float (&s)[4 * kBlocks], const AttentionCall& c, const Options& o,
                                      const void* mask, bool transposed, const int (&row)[2], int column) const {
    const int64_t row_step = c.mask_stride[transposed ? 3 : 2], column_step = c.mask_stride[transposed ? 2 : 3];
    const int end = static_cast<int>(transposed ? c.tq : c.tk);
    const auto with = [&]<class M>(const M* of) {
      if constexpr (!std::is_same_v<M, float>) {
        if (loaded) return add_loaded<M>(s, o.scale);
      }
      add_read(s, o.scale, of, row_step, column_step, row, column, end);
    };
    if (c.mask_dtype == DType::f32) {
      with(static_cast<const float*>(mask));
    } else if (c.mask_dtype == DType::bf16) {
      with(static_cast<const BFloat16*>(mask));
    } else {
      with(static_cast<const Half*>(mask));
    }
  }
};

/// Row 0, column 0 of a head's mask.
__device__ __forceinline__ const void* mask_of(const AttentionCall& c, int64_t b, int64_t h) {
  const int64_t at = b * c.mask_stride[0] + h * c.mask_stride[1];
  return static_cast<const char*>(c.mask) + at * (c.mask_dtype == DType::f32 ? 4 : 2);
}

/// philox() in fewer instructions: nvcc adds zeros to the upper halves of products in 64 bits.
__device__ __forceinline__ void draw_four(uint32_t (&c)[4], RngKey key, uint64_t block) {
  const uint64_t counter = key.offset + block;
  c[0] = static_cast<uint32_t>(counter), c[1] = static_cast<uint32_t>(counter >> 32), c[2] = c[3] = 0;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint32_t low0, high0, low1, high1;
    asm("{\n.reg .b64 p;\nmul.wide.u32 p, %2, 0xD2511F53;\nmov.b64 {%0, %1}, p;\n}"
        : "=r"(low0), "=r"(high0)
        : "r"(c[0]));
    asm("{\n.reg .b64 p;\nmul.wide.u32 p, %2, 0xCD9E8D57;\nmov.b64 {%0, %1}, p;\n}"
        : "=r"(low1), "=r"(high1)
        : "r"(c[2]));
    c[0] = high1 ^ c[1] ^ k0, c[2] = high0 ^ c[3] ^ k1;
    c[1] = low1, c[3] = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}
/// Which weights of a thread's part of a tile dropout keeps: bit 4 j + 2 r + e % 32 of word j / 8, as they are
/// numbered.
template <int kBlocks>
struct KeptBits {
  static constexpr int kWords = (kBlocks + 7) / 8;
  uint32_t words[kWords];

  __device__ __forceinline__ bool operator[](int i) const { return (words[i / 32] >> (i % 32) & 1) != 0; }

  /// Rows are queries; number[r] is that of row r's first column.
  __device__ __forceinline__ void draw(const Options& o, RngKey key, const uint64_t (&number)[2], bool fours) {
    const int t = threadIdx.x % 4;
    if (!fours) {
      draw_each(o, key, [&](int j, int r, int e) { return number[r] + (8 * j + 2 * t + e); });
      return;
    }
    // Two lanes need the same four numbers of two rows: each draws one row's.
    const uint64_t block = (number[t % 2] + 4 * (t / 2)) / 4;
    uint32_t mine[kWords];
    draw_fours(o, mine, key, [&](int j) { return block + 2 * j; });
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, mine[w], 1);
      const uint32_t first = t % 2 ? other : mine[w], second = t % 2 ? mine[w] : other;
      words[w] = (first >> (2 * (t % 2)) & 0x33333333u) | (second >> (2 * (t % 2)) & 0x33333333u) << 2;
    }
  }
  /// Rows are keys; `number` is that of the first column and the row that lane 0 has, from which rows come in fours;
  /// `step` lies between queries.
  __device__ __forceinline__ void draw_transposed(const Options& o, RngKey key, uint64_t number, int64_t step,
                                                  bool fours) {
    const int lane = threadIdx.x % 32, t = lane % 4, u = lane / 4 % 4;
    if (!fours) {
      draw_each(o, key, [&](int j, int r, int e) { return number + lane / 4 + 8 * r + (8 * j + 2 * t + e) * step; });
      return;
    }
    // Four lanes need one each of the same four numbers: each draws those of one place, 2 r + e = u, for all.
    const uint64_t from = number + lane / 16 * 4 + 8 * (u / 2) + (2 * t + u % 2) * step;
    uint32_t mine[kWords];
    draw_fours(o, mine, key, [&](int j) { return (from + 8 * j * step) / 4; });
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = 0;
#pragma unroll
      for (int place = 0; place < 4; ++place)
        words[w] |= (__shfl_sync(0xffffffffu, mine[w], (lane & ~12) | place << 2) >> u & 0x11111111u) << place;
    }
  }

 private:
  // Bit 4 j + k of `mine`: number k of block_of(j) is kept.
  template <class F>
  static __device__ __forceinline__ void draw_fours(const Options& o, uint32_t (&mine)[kWords], RngKey key,
                                                    const F& block_of) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      mine[w] = 0;
#pragma unroll
      for (int j = 0; j < (8 * w + 8 <= kBlocks ? 8 : kBlocks - 8 * w); ++j) {
        uint32_t four[4];
        draw_four(four, key, block_of(8 * w + j));
#pragma unroll
        for (int k = 0; k < 4; ++k) mine[w] |= four[k] >= o.drop_below ? 1u << (4 * j + k) : 0u;
      }
    }
  }
  template <class F>
  __device__ __forceinline__ void draw_each(const Options& o, RngKey key, const F& number_of) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = 0;
#pragma unroll 1
      for (int i = 0; i < (8 * w + 8 <= kBlocks ? 32 : 4 * (kBlocks - 8 * w)); ++i) {
        const uint64_t number = number_of(8 * w + i / 4, i / 2 % 2, i % 2);
        const auto four = philox(key, number / 4);
        uint32_t bits = four[0];
#pragma unroll
        for (uint32_t k = 1; k < 4; ++k) bits = number % 4 == k ? four[k] : bits;
        words[w] |= (bits >= o.drop_below ? 1u : 0u) << i;
      }
    }
  }
};

}  // namespace strata::attention_cuda
