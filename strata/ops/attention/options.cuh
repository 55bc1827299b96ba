#pragma once
// Masks and dropout in the tensor-core kernels. All of them hold a tile of scores alike: a thread has two rows, 8
// apart, and of each 8 columns two neighbours, s[4 j + 2 r + e] being row r's column 8 j + 2 (lane % 4) + e. Rows are
// queries and columns keys, or, where scores are transposed, the other way round.
//
// A mask is first turned into bits, one for each query and key, in rows of the kernel's orientation; what no query of a
// tile sees is known from them before the tile is copied. Additive masks are read where they lie.

#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda {

/// What a call's mask and dropout are to a kernel.
struct Options {
  const uint32_t* seen = nullptr;  ///< a bit for each query and key: seen, or given more than -inf. Null: no mask
  int64_t seen_batch = 0, seen_head = 0;  ///< words from one to the next; 0 where the mask has one for all
  int64_t seen_row = 0;
  const uint32_t* tiles = nullptr;  ///< for each tile of queries a bit for each tile of keys: some of it is seen
  int64_t tiles_batch = 0, tiles_head = 0;
  int tiles_row = 0;
  bool additive = false;
  bool pairs = false;       ///< two neighbouring keys of an additive mask can be read at once
  float per_scale = 1;      ///< what a bias counts in scores that are not scaled yet
  uint32_t drop_below = 0;  ///< a weight whose random number is below is dropped; 0: no dropout
  float kept_scale = 1;     ///< what the others are multiplied by
  bool fours = false;       ///< keys come in whole groups of four random numbers

  __device__ __forceinline__ const uint32_t* seen_of(int64_t b, int64_t h) const {
    return seen + b * seen_batch + h * seen_head;
  }
  /// The bits of tiles of keys for tile `i` of queries.
  __device__ __forceinline__ const uint32_t* tiles_of(int64_t b, int64_t h, int64_t i) const {
    return tiles + b * tiles_batch + h * tiles_head + i * tiles_row;
  }
};

/// Makes them for kernels whose flags are of `query_tile` by `key_tile`, and whose scores are transposed or not;
/// `space` keeps their memory. Two small kernels on the stream where there is a mask.
Options options_of(const AttentionCall& c, int query_tile, int key_tile, bool transposed, const Tensor& like_this,
                   Tensor& space);
/// Whether a call has any.
inline bool has_options(const AttentionCall& c) {
  return c.mask != nullptr || c.dropout > 0;
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
      const uint32_t* const p = seen + row[r] * o.seen_row + column / 32;
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        const uint32_t high = shift == 0 ? 0 : p[c + 1];
        words[c][r] = __funnelshift_r(p[c], high, shift) >> (2 * (threadIdx.x % 4));
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

/// Adds an additive mask to scores that are not scaled yet. `mask` is row 0, column 0 of the head; rows that do not
/// exist must have been moved to one that does, columns from `end` on are given anything.
template <int kBlocks, class M>
__device__ __forceinline__ void add_bias_of(float (&s)[4 * kBlocks], const Options& o, const M* mask, int64_t row_step,
                                            int64_t column_step, const int (&row)[2], int column, int end, bool pairs) {
  // A finite bias stays finite, and far below every score.
  const auto add = [&](float& x, float v) { x += v > -INFINITY ? fminf(fmaxf(v * o.per_scale, -1e30f), 1e30f) : v; };
  const int first = column + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const M* const p = mask + row[r] * row_step;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int at = first + 8 * j;
      if (pairs) {
        const auto v = cuda::load_vec<2>(p + min(at, end - 2));
        add(s[4 * j + 2 * r], cuda::widen(v.v[0])), add(s[4 * j + 2 * r + 1], cuda::widen(v.v[1]));
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e) add(s[4 * j + 2 * r + e], cuda::widen(p[min(at + e, end - 1) * column_step]));
      }
    }
  }
}
template <int kBlocks>
__device__ __forceinline__ void add_bias(float (&s)[4 * kBlocks], const AttentionCall& c, const Options& o, int64_t b,
                                         int64_t h, bool transposed, const int (&row)[2], int column) {
  const int64_t at = b * c.mask_stride[0] + h * c.mask_stride[1];
  const int64_t row_step = c.mask_stride[transposed ? 3 : 2], column_step = c.mask_stride[transposed ? 2 : 3];
  const int end = static_cast<int>(transposed ? c.tq : c.tk);
  const auto with = [&]<class M>(const M*) {
    add_bias_of<kBlocks>(s, o, static_cast<const M*>(c.mask) + at, row_step, column_step, row, column, end,
                         o.pairs && !transposed && column % 2 == 0);
  };
  if (c.mask_dtype == DType::f32) {
    with(static_cast<const float*>(nullptr));
  } else if (c.mask_dtype == DType::bf16) {
    with(static_cast<const BFloat16*>(nullptr));
  } else {
    with(static_cast<const Half*>(nullptr));
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
#pragma unroll 2
      for (int j = 0; j < (8 * w + 8 <= kBlocks ? 8 : kBlocks - 8 * w); ++j) {
        const auto four = philox(key, block_of(8 * w + j));
#pragma unroll
        for (int k = 0; k < 4; ++k) mine[w] |= (four[k] >= o.drop_below ? 1u : 0u) << (4 * j + k);
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
